"""Networks of schedules with one output for each machine: a perceptron of rows, TLP of primitives."""
