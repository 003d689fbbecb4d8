"""The tile-size task: kernels with measured tile sizes."""
