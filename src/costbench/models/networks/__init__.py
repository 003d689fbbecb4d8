"""The networks of the learned cost model: encoders, reductions and the layers they are made of."""
