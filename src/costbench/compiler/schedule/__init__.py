"""Schedules of tensor operators on a CPU: operators, spaces of schedules, and the loops that they become."""
