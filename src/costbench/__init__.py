"""costbench: reproducible benchmarking of cost models of tensor programs."""
