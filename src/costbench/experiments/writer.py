"""Writer tags: names of processes, by which others on the same machine can see whether a writer has ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from costbench.artifacts import is_alive

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Name of the machine whose processes can see each other: this host since it was started."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()}/{boot}"


def this_process() -> str:
    """The writer tag of this process, `HOST/BOOT PID`, which it leaves on trials and runs that it starts."""
    return f"{machine()} {os.getpid()}"


def is_gone(writer: str) -> bool:
    """Whether the process with this writer tag has ended; False for a process of another machine."""
    place, _, pid = writer.rpartition(" ")
    return place == machine() and pid.isdigit() and not is_alive(int(pid))
