"""The fusion task: fused kernels with measured runtimes."""
