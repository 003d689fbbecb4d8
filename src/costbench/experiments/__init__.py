"""Pipeline stages, training grids, evaluation, sweeps and tracking; alone in importing MLflow and Optuna."""
