"""Layouts: the memory order of every value, by default and as a space of decisions."""
