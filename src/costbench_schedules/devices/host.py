"""What the operating system says of the processor."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        name: model name with family, model and stepping, as the operating system has them.
        architecture: instruction set family, such as x86_64.
        features: instruction set extensions that decide the width of vectors, sorted.
    """

    name: str
    architecture: str
    features: tuple[str, ...]


@cache
def this_processor() -> Processor:
    """Returns the processor of this machine."""
    told = _facts()
    flags = told.get("flags", "").split()
    wide = sorted(flag for flag in flags if flag.startswith(("avx", "fma", "sse4", "amx")))
    numbers = [f"{key} {told[key]}" for key in ("cpu family", "model", "stepping") if key in told]
    name = ", ".join([told.get("model name", platform.processor() or "unknown"), *numbers])
    return Processor(name, platform.machine(), tuple(wide))


def _facts() -> dict[str, str]:
    """Returns the first processor's lines of /proc/cpuinfo; nothing where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
