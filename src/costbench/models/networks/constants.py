"""Constants of the networks' formulas, which the compiled kernels share."""

from __future__ import annotations

FORGET_OFFSET = 1.0
"""Added to the forget gate of an LSTM before its sigmoid, as in TensorFlow's cells: without biases the gate
would start at one half, and the state would forget a node within a few steps."""

NEGATIVE_SLOPE = 0.2
"""Slope of the leaky ReLU over attention scores (Veličković et al., 2018, section 2.1)."""
