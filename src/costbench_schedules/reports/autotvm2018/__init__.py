"""Results of searches for CPU schedules: figures 4 to 11 of autotvm2018, tables, headline numbers."""
