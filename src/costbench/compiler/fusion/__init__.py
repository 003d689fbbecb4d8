"""Fusion: which instructions of a program run as one kernel, by default and as a space of decisions."""
