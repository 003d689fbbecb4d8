"""Adapters of the libraries that grow gradient-boosted trees."""
