"""Tests of the compiled kernels are skipped where their package is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("costbench_kernels") else ["test_*.py"]
