"""Results on tuning tables of kernels on GPUs: how fast strategies find fast configurations."""
