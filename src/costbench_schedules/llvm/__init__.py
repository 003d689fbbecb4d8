"""Static analysis of LLVM IR and its instrumentation."""
