"""Runs in MLflow: what is logged, how runs are found again, which model is the champion."""
