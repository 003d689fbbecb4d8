"""The papers' own numbers."""
