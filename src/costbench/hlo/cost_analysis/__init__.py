"""What instructions cost in the abstract: FLOPs, bytes read and written, transcendental operations."""
