"""Whose work something is: the process, named so that others on its machine can see whether it is gone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from costbench.artifacts import is_alive

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Of processes that can see each other: this host since it was started."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()}/{boot}"


def this_process() -> str:
    """`HOST/BOOT PID`, to be left on what this process has begun."""
    return f"{machine()} {os.getpid()}"


def is_gone(owner: str) -> bool:
    """Whether a process of this machine has ended; False for those elsewhere, which nobody here can see."""
    place, _, pid = owner.rpartition(" ")
    return place == machine() and pid.isdigit() and not is_alive(int(pid))
