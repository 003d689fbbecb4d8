"""Tile-size searches as figures and tables."""
