"""Searches and tests of models on recorded tables and networks, and live tuning."""
