"""`python -m costbench` is `costbench`."""

from costbench.cli import main

main()
