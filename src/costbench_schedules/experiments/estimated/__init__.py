"""Searches of recorded tables whose programs have estimates of crop2024's analytical model."""
