"""The zoo that made `data/programs`: models in JAX and Keras, the tables of programs, the collector."""
