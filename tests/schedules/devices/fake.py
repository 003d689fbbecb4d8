"""Limits that start the worker without a compiler."""

from __future__ import annotations

import sys
from pathlib import Path

from costbench_schedules.devices.process import Limits

_SCRIPT = str(Path(__file__).with_name("fake_worker.py"))
FAKE = Limits(build_s=0.5, run_s=5.0, command=(sys.executable, _SCRIPT))


def fake(*kinds: str) -> Limits:
    """Limits of a worker in which the choice of `unroll` decides what becomes of a schedule."""
    return Limits(build_s=0.5, run_s=5.0, command=(sys.executable, _SCRIPT, "--kinds", ",".join(kinds)))
