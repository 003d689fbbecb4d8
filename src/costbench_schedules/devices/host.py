"""What the operating system says of the processor and of its caches."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from costbench.errors import DataError

CACHES_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1, "M": 1024, "G": 1024 * 1024}


@dataclass(frozen=True)
class HostProcessor:
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
def this_processor() -> HostProcessor:
    """Returns the processor of this machine."""
    facts = _facts()
    flags = facts.get("flags", "").split()
    wide = sorted(flag for flag in flags if flag.startswith(("avx", "fma", "sse4", "amx")))
    numbers = [f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts]
    name = ", ".join([facts.get("model name", platform.processor() or "unknown"), *numbers])
    return HostProcessor(name, platform.machine(), tuple(wide))


def _facts() -> dict[str, str]:
    """Returns the first processor's lines of /proc/cpuinfo; nothing where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def model_name() -> str:
    """Returns the model name of the processor; `unknown` where the system does not say."""
    return _facts().get("model name", "unknown")


@dataclass(frozen=True)
class CacheFacts:
    """A cache as the system describes it.

    Attributes:
        level: 1 is the nearest.
        kib: size in KiB.
        associativity: lines of a set; 1 << 16 for a cache that the system calls fully associative.
        line_bytes: bytes of a line.
        sharers: hardware threads that share it.
    """

    level: int
    kib: float
    associativity: int
    line_bytes: int
    sharers: int


def cache_facts(folder: Path = CACHES_FOLDER) -> tuple[CacheFacts, ...]:
    """Returns the caches that hold data, nearest first.

    Raises:
        DataError: if the system says nothing of them, or leaves out a size.
    """
    caches = []
    for index in sorted(folder.glob("index*")):
        facts = {file.name: _text(file) for file in index.iterdir() if file.is_file()}
        if facts.get("type") not in ("Data", "Unified"):
            continue
        try:
            size = facts["size"]
            caches.append(
                CacheFacts(
                    int(facts["level"]),
                    float(size[:-1]) * _UNITS[size[-1]],
                    int(facts["ways_of_associativity"]) or 1 << 16,
                    int(facts["coherency_line_size"]),
                    _num_listed(facts.get("shared_cpu_list", "0")),
                )
            )
        except (KeyError, ValueError) as error:
            expected = "level, size, ways_of_associativity and coherency_line_size"
            raise DataError("incomplete facts of a cache", where=index, expected=expected) from error
    if not caches:
        expected = "a system that describes its caches; write a description by hand instead (docs/crop.md)"
        raise DataError("no facts of caches", where=folder, expected=expected)
    return tuple(sorted(caches, key=lambda cache: cache.level))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _num_listed(text: str) -> int:
    """Returns how many numbers a list such as 0-3,8 has."""
    parts = [part.partition("-") for part in text.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in parts)
