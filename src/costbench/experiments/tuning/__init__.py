"""Tuning one program of a user's, as `costbench tune` runs it."""
