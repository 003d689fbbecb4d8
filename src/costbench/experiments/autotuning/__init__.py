"""Autotuning of test programs with trained cost models, as the stage `autotune` runs it."""
