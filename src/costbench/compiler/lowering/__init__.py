"""Lowering: from a kernel to the loops that run it and the tiles that these loops move."""
