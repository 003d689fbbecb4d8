"""Training of layout networks: configs drawn per program, whole graphs or segments, losses over configs."""
