"""XLA's backend for processors as a machine: fusing, compiling, running and timing programs."""
