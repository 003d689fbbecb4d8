"""The suite: anyone's cost model scored on fixed, versioned data, and a table of the results."""

VERSION = 1
"""Version of the data, splits and metrics. They never change: what differs gets a new number."""
