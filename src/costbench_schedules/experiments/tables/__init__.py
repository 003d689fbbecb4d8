"""Searches for CPU schedules on recorded tables: the experiments of autotvm2018, section 6."""
