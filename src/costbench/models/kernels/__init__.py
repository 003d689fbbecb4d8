"""Compiled kernels of the networks: what a CPU runs in place of plain PyTorch."""
