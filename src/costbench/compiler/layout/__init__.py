"""Layout assignment: the memory order of every value, by default and under a layout config."""
