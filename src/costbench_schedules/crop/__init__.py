"""The analytical cost model of tensor programs on processors."""
