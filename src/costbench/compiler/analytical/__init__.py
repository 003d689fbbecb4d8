"""The compiler's own hand-written cost model of tile sizes."""
