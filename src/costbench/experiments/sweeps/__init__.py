"""Sweeps over hyper-parameters: studies in Optuna, their workers and their best trials."""
