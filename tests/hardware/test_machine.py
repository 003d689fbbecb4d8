from __future__ import annotations

from dataclasses import replace

import pytest

from costbench.hardware import machine
from costbench.hardware.machine import machine_numbers
from costbench.target import load_target

V3 = load_target("tpu_v3")
NAMES = [name for name, value in vars(machine).items() if name.isupper() and isinstance(value, int)]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_in_its_place(name: str) -> None:
    field = name.lower()
    source = V3.timing if hasattr(V3.timing, field) else V3.architecture
    assert machine_numbers(V3)[getattr(machine, name)] == getattr(source, field)


def test_other_targets_have_other_numbers() -> None:
    slower = replace(V3, timing=replace(V3.timing, launch_ns=1e6))
    assert machine_numbers(slower)[machine.LAUNCH_NS] == 1e6
    assert machine_numbers(V3)[machine.LAUNCH_NS] == V3.timing.launch_ns
