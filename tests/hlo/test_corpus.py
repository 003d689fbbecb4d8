"""Every feature of HLO as XLA prints it is read, written, counted and compiled; one small module for each.

XLA's own parser and cost analysis are the reference where jaxlib is installed.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costbench.compiler.program import compile_program
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.cost_analysis import Cost, module_cost
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes, read_module

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.hlo"))
NAMES = [file.stem for file in CORPUS]
# Why costs differ from XLA's; `cost_analysis.counts` says the same.
WRAPPED = "XLA's parser takes the wrapped instruction for the older opcode"
NOT_AS_XLA = {
    "async_all_reduce_several": WRAPPED,
    "async_all_reduce_wrapped": WRAPPED,
    "async_copy_wrapped": WRAPPED,
    "async_custom_call": "XLA counts -1 for custom calls",
    "custom_call_empty": "XLA counts -1 for custom calls",
    "custom_call_empty_root": "XLA counts -1 for custom calls",
    "custom_call_literal": "XLA counts -1 for custom calls",
    "json_line_breaks": "XLA counts -1 for custom calls",
    "dynamic_axes": "XLA on the CPU counts the bytes that hold dynamic sizes",
    "scan_of_rows": "XLA counts the function of a scan once per element of a step",
    "empty_arrays": "XLA counts less than nothing for a reduction of an empty array",
}
needs_xla = pytest.mark.skipif(
    importlib.util.find_spec("jaxlib") is None, reason="needs the corpus extra (jax) for XLA's parser"
)


def in_post_order(module: HloModule) -> list[list[Instruction]]:
    """Returns the instructions by computation, depth first from the root, as XLA stores them.

    Names, which XLA makes unique, and contents of constants, which texts lack, are left out.
    """
    computations = []
    for computation in module.computations:
        order: dict[int, int] = {}
        for start in (computation.root, *range(len(computation.instructions))):
            stack = [start]
            while stack:
                waiting = [o for o in computation.instructions[stack[-1]].operands if o not in order]
                if waiting:
                    stack.append(waiting[0])
                else:
                    order.setdefault(stack.pop(), len(order))
        instructions = [computation.instructions[position] for position in order]
        operands = [tuple(order[o] for o in inst.operands) for inst in instructions]
        pairs = zip(instructions, operands, strict=True)
        computations.append([replace(inst, name="", literal=b"", operands=read) for inst, read in pairs])
    return computations


@pytest.mark.parametrize("file", CORPUS, ids=NAMES)
def test_a_module_is_the_same_from_text_and_from_its_message(file: Path) -> None:
    module = read_module(file)
    again = module_from_bytes(module_to_bytes(module), where=file.name)
    assert again == module
    assert module_cost(again) == module_cost(module)


@pytest.mark.parametrize("file", CORPUS, ids=NAMES)
def test_a_module_compiles_without_fusions_and_asynchronous_pairs(file: Path) -> None:
    flat = inline_fusions(read_module(file))
    running = {
        kernel.instruction(position).opcode
        for kernel in compile_program(flat, file.stem).kernels
        for position in kernel.instructions
    }
    assert not any(opcode.xla_name.endswith(("-start", "-update", "-done")) for opcode in running)
    assert Opcode.FUSION not in running


# FLOPs and transcendental operations by hand: 64 * 128 = 8,192 elements, 8 * 128 = 1,024, 16 * 128 = 2,048.
BY_HAND = {
    # An all-reduce of 8,192 elements, once, and a negation.
    "async_all_reduce_wrapped": Cost(flops=2 * 8_192),
    "async_call": Cost(flops=8_192, transcendentals=8_192),
    "async_slice": Cost(flops=1_024),
    # The whole of 256 * 128 elements is negated after an all-reduce of a quarter.
    "collective_starts": Cost(flops=8_192 + 4 * 8_192),
    "copy_async": Cost(flops=8_192),
    # 16 elements of the left side by 32 columns for each of 64 rows, of which XLA counts one.
    "ragged_dot": Cost(flops=2 * 16 * 32),
    "ragged_all_to_all": Cost(),
    # One application of an addition, of scalars and of rows of 8.
    "scan_associative": Cost(flops=1),
    # One iteration: 8,192 exponentials and additions, i + 1, i < 7; and the fusion behind the loop.
    "fusion_in_loop": Cost(flops=2 * 8_192 + 2, transcendentals=2 * 8_192),
    "scan_of_rows": Cost(flops=8),
    "empty_arrays": Cost(),
    # 8 * 32 sums of 16 products, 32 sums of 8, 32 comparisons and selections; 34 tanh.
    "shapes_left_out": Cost(flops=2 * 8 * 32 * 16 + 32 * 7 + 2 * 32, transcendentals=34),
}


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_work_by_hand(name: str) -> None:
    cost = module_cost(read_module(CORPUS[NAMES.index(name)]))
    assert (cost.flops, cost.transcendentals) == (BY_HAND[name].flops, BY_HAND[name].transcendentals)


def test_bytes_of_fusions_by_hand() -> None:
    def read_and_written(name: str) -> tuple[float, float]:
        cost = module_cost(read_module(CORPUS[NAMES.index(name)]))
        return cost.bytes_read, cost.bytes_written

    slice_bytes, whole, index = 4 * 8 * 128, 4 * 64 * 128, 4
    assert read_and_written("fusion_nested_slice") == (slice_bytes + index, slice_bytes)
    # A slice of a fusion that only copies reads the slice, one of a copy in the same fusion the whole.
    assert read_and_written("fusion_nested_copy") == (slice_bytes + index, slice_bytes)
    assert read_and_written("fusion_of_copied_slice") == (whole + index, slice_bytes)
    # One member of a pair, and for the other one the pair's two pointers.
    assert read_and_written("fusion_tuple_parameter") == (whole + 16, whole)


def xla_module(file: Path) -> Any:
    from jaxlib import _hlo

    return _hlo.hlo_module_from_text(file.read_text())


@needs_xla
@pytest.mark.parametrize("file", CORPUS, ids=NAMES)
def test_xla_reads_the_same_module(file: Path) -> None:
    if NOT_AS_XLA.get(file.stem) == WRAPPED:
        pytest.skip(WRAPPED)
    message = xla_module(file).as_serialized_hlo_module_proto()
    assert in_post_order(read_module(file)) == in_post_order(module_from_bytes(message, where=file.name))


@needs_xla
@pytest.mark.parametrize("file", CORPUS, ids=NAMES)
def test_xla_counts_the_same(file: Path) -> None:
    import jax
    from jaxlib import _jax

    if file.stem in NOT_AS_XLA:
        pytest.skip(NOT_AS_XLA[file.stem])
    client = jax.local_devices(backend="cpu")[0].client
    theirs = dict(_jax.hlo_module_cost_analysis(client, xla_module(file)))
    cost = module_cost(read_module(file))
    assert cost == Cost(
        flops=theirs.get("flops", 0.0),
        bytes_read=theirs.get("bytes accessed", 0.0) - theirs.get("bytes accessedout{}", 0.0),
        bytes_written=theirs.get("bytes accessedout{}", 0.0),
        transcendentals=theirs.get("transcendentals", 0.0),
    )
