"""How good a prediction is: rank correlation, selection loss, regression error, intervals. NumPy only."""
