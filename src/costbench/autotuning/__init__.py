"""Cost models at work: strategies that look for fast decisions, on a model, on a machine, or on both."""
