"""Pipeline stages, training grids, evaluation, sweeps and tracking; alone in importing Optuna.

MLflow is imported here alone as well, but for the file that it runs itself, `serving.mlflow_model`.
"""
