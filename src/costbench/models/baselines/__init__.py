"""Baselines that are fitted in seconds; a trained network has to beat them. `fitting` has their table."""
