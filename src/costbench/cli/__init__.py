"""The command line: options, progress and output; the work is done by the library."""
