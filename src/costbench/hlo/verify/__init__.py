"""What every instruction must satisfy, as in XLA's shape inference and HLO verifier."""
