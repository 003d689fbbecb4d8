"""Cost models of schedules, fitted while a search goes on (autotvm2018, sections 3 and 4)."""
