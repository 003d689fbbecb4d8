"""Limits that start the worker without a compiler."""

from __future__ import annotations

import sys
from pathlib import Path

from costbench.hardware.cpu.process import Limits

FAKE = Limits(
    build_s=0.5, run_s=5.0, command=(sys.executable, str(Path(__file__).with_name("fake_worker.py")))
)
