"""The suite: anyone's cost model scored on fixed, versioned data, and a table of the results."""
