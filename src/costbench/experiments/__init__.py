"""What is run: training cells, evaluation, tracking. The only package that meets MLflow and Optuna."""
