"""The networks of the learned cost model in plain PyTorch and PyTorch Geometric: the readable truth.

Every module here is an ordinary `nn.Module` under ordinary autograd, on a CPU or a GPU, in any floating type.
`models.kernels` computes the same functions faster on a CPU; nothing here knows of it.
"""
