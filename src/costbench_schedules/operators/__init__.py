"""Tensor operators: what is scheduled, their reference values, and networks as lists of them."""
