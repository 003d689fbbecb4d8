"""The simulated TPU: computes the runtime of a kernel and measures it with noise, as a real machine would."""
