"""Instrumented kernels and microbenchmarks, compiled from LLVM IR and run on this processor."""
