"""The processor of this machine as a measuring device for schedules of tensor operators."""
