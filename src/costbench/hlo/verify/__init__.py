"""Verification of instructions, with the rules of XLA's shape inference and HLO verifier."""
