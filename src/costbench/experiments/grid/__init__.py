"""Training cells: the grid of an experiment, one training run for each of its cells."""
