"""Tables of results, ours beside the papers'."""
