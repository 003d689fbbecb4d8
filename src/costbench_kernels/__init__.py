"""Compiled kernels for processors, which compute costbench's networks faster than plain PyTorch; optional.

`dispatch.compiled_forward` is the only way in; costbench calls it at one place, `costbench.models.learned`.
Without this package the plain networks of `costbench.models.networks` run, which define the results.

From the bottom: one tile of a matrix product in vector registers (`register_tiles`), matrix products
(`gemm`), fused kernels of the parts of a network (`graphsage`, `gat`, `lstm`, `layers`, `reductions`), and
the steps that compute modules by them (`hops`, `attention`), joined into one torch function (`steps`).
"""
