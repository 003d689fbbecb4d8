"""Machine-independent cost of instructions: FLOPs, bytes read and written, transcendental operations."""
