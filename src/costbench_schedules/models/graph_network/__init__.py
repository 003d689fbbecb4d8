"""The networks of the tile task on schedules: a graph network and an LSTM over loops and statements."""
