"""Batches of kernels as one shared graph with many decisions on it."""
