"""The simulated compiler: layouts, fusion, kernels and their tile sizes."""
