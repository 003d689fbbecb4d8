"""Identities of kernels: fingerprints and hashes by which equal kernels are found."""
