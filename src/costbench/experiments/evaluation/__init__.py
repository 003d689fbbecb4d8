"""Evaluation: cost models against measured runtimes, on programs that training never saw."""
