"""The report on searches: autotuners with and without a model."""
