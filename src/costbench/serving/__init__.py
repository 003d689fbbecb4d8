"""Trained cost models as a service: requests with HLO kernels and tile sizes in, costs out."""
