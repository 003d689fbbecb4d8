"""Lowering of kernels to loop nests: the loops of a kernel, and the tile of every value that they move."""
