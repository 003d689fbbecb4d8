"""Fingerprints and hashes of kernels: kernels that cost the same are found without comparing graphs."""
