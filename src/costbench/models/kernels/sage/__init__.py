"""Compiled kernels of GraphSAGE, forward and backward."""
