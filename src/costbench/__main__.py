"""`python -m costbench` is `costbench`."""

from costbench.cli.app import main

main()
