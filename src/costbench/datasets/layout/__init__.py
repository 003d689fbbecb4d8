"""The layout task: programs with measured layout configs."""
