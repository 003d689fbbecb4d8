"""What sentences say: tests hold numbers and names in them against data, and leave the words to the code."""

from __future__ import annotations

import re


def numbers(text: str) -> list[float]:
    """The numbers of a text, in its order, without those in names such as tpu_v2 and lpm2021."""
    return [
        float(number.replace(",", ""))
        for number in re.findall(r"(?<![\w.,])[+-]?\d[\d,]*(?:\.\d+)?(?![\w])", text)
    ]


def listed(text: str) -> list[str]:
    """Returns what a sentence lists behind its last colon: "Not run: a, b." has a and b."""
    return re.split("[,;] ", text.rpartition(": ")[2].removesuffix("."))
