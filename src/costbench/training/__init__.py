"""Training of learned cost models: losses, batches drawn evenly over applications, the Lightning loop."""
