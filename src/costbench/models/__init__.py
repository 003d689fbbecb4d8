"""Cost models: anything that prices decisions, hand-written or trained."""
