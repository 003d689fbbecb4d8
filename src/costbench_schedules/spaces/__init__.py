"""Spaces of schedules of an operator, and the loops that schedules become."""
