"""Upper limits of what is read: how large, how deep and how long a data file and its parts may be.

A file that somebody else wrote may be small and stand for much: compressed, by aliases, by shapes that
double. Readers compare with these limits while they read, so that time and memory stay in proportion to the
file. All limits are far above what programs, parameters and results need; docs/limits.md has the reasons.
"""

from __future__ import annotations

MAX_FILE_BYTES = 1 << 30
"""A file that is read whole, and what a compressed one expands to."""
MIN_EXPANDED_BYTES = 1 << 26
"""What a compressed file of any size may expand to."""
MAX_EXPANSION = 100
"""Times that a compressed file may expand beyond `MIN_EXPANDED_BYTES`."""
MAX_JSON_BYTES = 1 << 26
"""A JSON file."""
MAX_YAML_BYTES = 1 << 19
"""A YAML file."""
MAX_YAML_VALUES = 1 << 18
"""Values of a YAML file, counted once for each alias and merge key that repeats them."""
MAX_DIGITS = 40
"""Digits of an integer in a YAML or JSON file."""
MAX_LINE_BYTES = 1 << 24
"""A line of a file of records."""
MAX_INSTRUCTIONS = 1 << 18
"""Instructions of a module."""
MAX_MESSAGES = 1 << 21
"""Messages in a protocol buffer: eight for each of the most instructions; programs have four."""
MAX_NESTING = 64
"""Tuples within tuples, and operands within operands; protocol buffers end at 100 levels of messages."""
MAX_RANK = 64
"""Axes of an array."""
MIN_SHAPE_PARTS = 1 << 16
"""Arrays and tuples in the shapes that a text leaves out; a long text may leave out one per instruction."""
MAX_WHOLE_ARRAY_BYTES = 1 << 29
"""An array of an `.npz` file that is read whole; larger ones are read in blocks."""
MAX_WIDTH = 1 << 13
"""Width of a layer of a network."""
MAX_LAYERS = 128
"""Layers of one kind of a network."""
MAX_MESSAGE_LENGTH = 499
"""Letters of an error message."""


def max_expanded_bytes(stored_bytes: int) -> int:
    """Returns the number of bytes that `stored_bytes` compressed ones may expand to."""
    return min(MAX_FILE_BYTES, max(MIN_EXPANDED_BYTES, MAX_EXPANSION * stored_bytes))
