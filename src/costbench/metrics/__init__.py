"""Metrics of predictions: rank correlation, selection loss, regression error, intervals. NumPy only."""
