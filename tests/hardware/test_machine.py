from __future__ import annotations

from dataclasses import fields, replace

import pytest

from costbench.hardware import machine
from costbench.hardware.machine import CHOICES, machine_numbers
from costbench.target import Formulas, Timing, load_target

V3 = load_target("tpu_v3")
NAMES = [field.name.upper() for field in fields(Timing)]
NAMES += ["CYCLE_NS", "NUM_MXUS", "MXU_SIZE", "SCRATCHPAD_BYTES"]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_in_its_place(name: str) -> None:
    field = name.lower()
    source = V3.timing if hasattr(V3.timing, field) else V3.architecture
    assert machine_numbers(V3)[getattr(machine, name)] == getattr(source, field)


def test_other_targets_have_other_numbers() -> None:
    slower = replace(V3, timing=replace(V3.timing, launch_ns=1e6))
    assert machine_numbers(slower)[machine.LAUNCH_NS] == 1e6
    assert machine_numbers(V3)[machine.LAUNCH_NS] == V3.timing.launch_ns


@pytest.mark.parametrize("rule", [field.name for field in fields(Formulas)])
def test_rules_are_numbers(rule: str) -> None:
    index = getattr(machine, rule.upper())
    assert machine_numbers(V3)[index] == 0
    for number, choice in enumerate(CHOICES[rule]):
        other = replace(V3, formulas=replace(Formulas(), **{rule: choice}))
        numbers = machine_numbers(other)
        assert numbers[index] == number
        assert [i for i, (a, b) in enumerate(zip(numbers, machine_numbers(V3), strict=True)) if a != b] == (
            [index] if number else []
        )
        # Compiled code compares with constants of these names.
        assert getattr(machine, f"{rule.upper()}_{choice.upper()}", number) == number
