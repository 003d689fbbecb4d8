"""Processors as measuring devices: TVM, timing, descriptions of processors."""
