"""Results on schedules as tables, figures and pages: autotvm2018 and crop2024."""
