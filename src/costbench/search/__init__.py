"""Strategies that search a space of decisions, whatever scores them."""
