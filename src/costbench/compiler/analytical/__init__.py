"""The compiler's hand-written (analytical) cost model for tile sizes."""
