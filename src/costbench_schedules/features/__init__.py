"""Features of schedules, computed from their loops (autotvm2018, section 4)."""
