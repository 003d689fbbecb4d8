"""The corpus as tables of rows, one per field of application."""
