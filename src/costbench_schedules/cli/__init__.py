"""Commands for schedules of tensor operators on the processor of this machine."""
