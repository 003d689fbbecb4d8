"""Compiled kernels of graph attention, forward and backward."""
