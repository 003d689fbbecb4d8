"""HLO in its textual form, as XLA prints it."""
