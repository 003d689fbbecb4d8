"""Baselines of the layout task, which read whole programs and not kernels."""
