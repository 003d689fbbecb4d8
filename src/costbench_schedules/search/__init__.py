"""Tuning guided by a model that learns from the measurements while the search goes on (autotvm2018)."""
