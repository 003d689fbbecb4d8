"""How the models of each task are trained, one module a kind of sample."""
