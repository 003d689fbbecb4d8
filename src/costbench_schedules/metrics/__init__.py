"""Metrics of schedules."""
