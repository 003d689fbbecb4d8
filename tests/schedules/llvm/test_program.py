from __future__ import annotations

import pytest

from costbench.errors import DataError
from costbench_schedules.llvm.program import ENTRY_EDGE, parse_program
from tests.schedules.llvm import kernels


def test_control_flow_graph_of_a_triple_loop() -> None:
    [function] = parse_program(kernels.MATMUL, "kernel").functions
    assert [(block.name, block.successors) for block in function.blocks] == [
        ("entry", ("rows",)),
        ("rows", ("columns",)),
        ("columns", ("sum",)),
        ("sum", ("sum", "columns.end")),
        ("columns.end", ("columns", "rows.end")),
        ("rows.end", ("rows", "done")),
        ("done", ()),
    ]
    assert function.predecessors["entry"] == (ENTRY_EDGE,)
    assert function.predecessors["sum"] == ("columns", "sum")
    assert [name for _, name in function.parameters] == ["left", "right", "out"]
    phi = function.blocks[3].instructions[1]
    assert phi.incoming == (("", "columns"), ("total.next", "sum"))


def test_functions_that_a_kernel_mentions_belong_to_it_and_others_do_not() -> None:
    other = "\ndefine void @unrelated() {\n  ret void\n}\n"
    program = parse_program(kernels.PARALLEL + other, "kernel")
    assert [function.name for function in program.functions] == ["kernel", "task"]


def test_blocks_without_names_have_their_numbers() -> None:
    text = (
        "define i32 @f(i32 %0) {\n  switch i32 %0, label %2 [\n    i32 1, label %3\n    i32 2, label %3\n  ]"
    )
    text += "\n2:\n  br label %3\n3:\n  %4 = phi i32 [ 7, %2 ], [ 8, %1 ], [ 8, %1 ]\n  ret i32 %4\n}\n"
    [function] = parse_program(text, "f").functions
    assert [(block.name, block.successors) for block in function.blocks] == [
        ("1", ("2", "3")),
        ("2", ("3",)),
        ("3", ()),
    ]


def test_metadata_and_debug_records_are_left_out() -> None:
    text = "define void @f(ptr %p) {\n  %x = load i32, ptr %p, align 4, !range !0\n  ret void\n}\n"
    text += "!0 = !{i32 0, i32 9}\n"
    [function] = parse_program(text, "f").functions
    assert function.blocks[0].instructions[0].text == "load i32, ptr %p, align 4"


@pytest.mark.parametrize(
    ("text", "entry", "said"),
    [
        ("define void @f() {\n  %x = nonsense i32 1\n  ret void\n}\n", "f", "malformed IR"),
        ("define void @f() {\n  %x = add i32 1, %y\n  ret void\n}\n", "f", "malformed IR"),
        ("", "f", "no function 'f'"),
        (kernels.FIGURE, "main", "expected one of kernel"),
    ],
)
def test_what_is_no_kernel_is_one_error(text: str, entry: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        parse_program(text, entry, "a.ll")
    assert str(caught.value).startswith("a.ll")
    assert "\n" not in str(caught.value)
