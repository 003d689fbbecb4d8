"""Profiles of real machines, as `jax.profiler.trace` writes them, as samples of the fusion task."""
