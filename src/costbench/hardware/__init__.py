"""The simulated TPU: what a kernel costs on it, and how that is measured."""
