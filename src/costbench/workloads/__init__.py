"""Real programs: the model zoo, its lowering to canonical HLO, and the manifest of the corpus."""
