"""XLA programs as immutable values: reading, checking, counting and fingerprinting them."""
