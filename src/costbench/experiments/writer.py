"""Writer tags name the process that wrote a record, so that others can check whether it has ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from costbench.artifacts import is_alive

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Returns the name of this host and its boot: the processes of one boot can see each other."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{socket.gethostname()}/{boot}"


def this_process() -> str:
    """Returns the writer tag of this process, `HOST/BOOT PID`, set on trials and runs that it starts."""
    return f"{machine()} {os.getpid()}"


def is_gone(writer: str) -> bool:
    """Returns whether the process with this writer tag has ended; False for one of another machine."""
    machine_name, _, pid = writer.rpartition(" ")
    return machine_name == machine() and pid.isdigit() and not is_alive(int(pid))
