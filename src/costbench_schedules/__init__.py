"""Schedules of tensor operators on processors: AutoTVM's searches, Crop's analytical model, records."""
