from __future__ import annotations

from dataclasses import replace

import pytest

from costbench_schedules.crop.registers import spills
from costbench_schedules.llvm.features import static_features
from costbench_schedules.llvm.program import parse_program
from tests.schedules.crop.machines import CORE, ROUND
from tests.schedules.llvm import kernels


@pytest.mark.parametrize(
    ("chains", "registers", "expected"),
    [(8, 16, (0, 0)), (16, 16, (0, 0)), (12, 8, (4, 4)), (24, 16, (8, 8))],
)
def test_sums_that_do_not_fit_are_stored_and_loaded(
    chains: int, registers: int, expected: tuple[int, int]
) -> None:
    program = parse_program(kernels.vector_loop(8, chains), "kernel")
    static, names = static_features(program)
    processor = replace(ROUND, core=replace(CORE, vector_registers=registers))
    assert tuple(spills(static, processor)[names.index("kernel:loop")]) == expected


def test_operands_in_memory_need_no_register() -> None:
    loads = "\n".join(
        f"  %x{i} = load <8 x float>, ptr %p\n  %y{i} = fadd <8 x float> %x{i}, %v" for i in range(20)
    )
    stores = "\n".join(f"  store <8 x float> %y{i}, ptr %p" for i in range(20))
    # Each sum is stored at the end, so that twenty are alive.
    text = f"define void @kernel(ptr %p, <8 x float> %v) {{\n{loads}\n{stores}\n  ret void\n}}\n"
    static, _ = static_features(parse_program(text, "kernel"))
    processor = replace(ROUND, core=replace(CORE, vector_registers=32))
    assert spills(static, processor).tolist() == [[0, 0]]
    loaded, stored = spills(static, ROUND)[0].tolist()
    assert loaded == stored == 20 - CORE.vector_registers
