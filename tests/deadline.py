"""How long tests wait for processes."""

HANGS_AFTER_S = 1200
"""What takes longer has stopped moving. A busy or slow machine is no reason to fail."""
