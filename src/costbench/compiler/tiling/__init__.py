"""Tile sizes of a kernel: how they are written down, which of them are legal, what memory they take."""
