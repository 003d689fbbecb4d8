"""Hash functions for compiled code: BLAKE2b for names, SplitMix64 for numbers that look random."""
