"""Samples at rest: programs with their measured decisions, and the public formats of such data."""
