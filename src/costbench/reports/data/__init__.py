"""The report on the data: sizes, distributions, splits, leaks and training budgets."""
