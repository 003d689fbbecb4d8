"""Autotuning: searches for fast decisions that are scored by a cost model, a machine, or both in turn."""
