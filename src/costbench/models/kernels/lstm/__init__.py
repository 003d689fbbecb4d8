"""Compiled kernels of the LSTM, forward and backward."""
