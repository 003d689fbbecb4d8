"""The networks of the learned cost model in plain PyTorch and PyTorch Geometric (the reference).

Every module is an ordinary `nn.Module` under ordinary autograd, on a CPU or a GPU, in any floating-point
type. `costbench_kernels` computes the same functions faster on a CPU; nothing here depends on it.
"""
