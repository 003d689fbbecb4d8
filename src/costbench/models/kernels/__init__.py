"""Compiled CPU kernels that compute the networks of `models.networks` faster than plain PyTorch.

`dispatch.compiled_forward` is the way in. Network parts are fused kernels (`steps.FusedKernel`) in `sage`,
`gat`, `lstm` and `layer_kernels`, built on the matrix products of `gemm`, whose inner loop is in
`register_tiles`.
"""
