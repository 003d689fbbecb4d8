"""Fusion searches as figures and tables."""
