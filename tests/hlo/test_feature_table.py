"""The table in docs/hlo_features.md says what is so, of every small module and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costbench.compiler.program import PreparedProgram
from costbench.errors import HloError
from costbench.experiments.autotuning.outside_prices import outside_instruction
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import read_module
from costbench.hlo.text.parser import module_from_text
from tests.hlo.test_corpus import NAMES, NOT_AS_XLA

CORPUS = Path(__file__).parent / "corpus"
MODULES: dict[str, tuple[str, ...]] = {
    "fusions": (
        "conditional_fusions", "fusion_in_loop", "fusion_nested_copy", "fusion_nested_slice",
        "fusion_of_copied_slice", "fusion_tuple_parameter",
    ),
    "loops": ("fusion_in_loop", "conditional_fusions", "async_call"),
    "`slice-start`": ("async_call", "async_fusion", "async_generic", "async_slice"),
    "`all-reduce-start`": ("async_all_reduce_several", "async_all_reduce_wrapped", "collective_starts"),
    "`copy-start`": ("async_copy_wrapped", "copy_async"),
    "collectives": (
        "async_all_to_all", "async_reduce_scatter", "compiled_sharded_scan", "permute_in_place",
        "permute_in_place_tuple", "permute_several", "reduce_scatter_scalar", "replica_groups_iota",
        "replica_groups_mesh",
    ),
    "custom calls": (
        "async_custom_call", "custom_call_empty", "custom_call_empty_root", "custom_call_literal",
        "json_line_breaks",
    ),
    "infeed": ("outfeed",),
    "ragged-dot": ("ragged_dot",),
    "ragged-all-to-all": ("ragged_all_to_all",),
    "scan": ("scan_associative", "scan_of_rows"),
    "dynamic axes": ("dynamic_axes",),
    "bitcasts": ("bitcast_width", "empty_arrays", "empty_reshape"),
    "results without": ("nested_computations", "nested_operands", "no_entry", "shapes_left_out"),
    "transforms": ("fft_empty",),
    "windows": (),
    "buffers": (),
}  # fmt: skip
"""The modules of a row, by how its first column begins."""
NOTHING = "at nothing, or by `--prices`"
NO_KERNEL = {"custom_call_empty", "reduce_scatter_scalar"}
"""Nobody uses the result of the one; the other is of a scalar."""
REFUSED = {
    "windows": "f32[8,8,4,4] convolution(p, q), window={size=3x3 pad=1_1}, dim_labels=b01f_01io->b01f",
    "dynamic axes": "f32[?] negate(p)",
    "buffers": "b(f32[8,8,4,4]) negate(p)",
}
"""An instruction of a kind that the row calls refused."""


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    page = (request.config.rootpath / "docs" / "hlo_features.md").read_text("utf-8")
    table = page.split("| feature | read | counted (FLOPs, bytes) |")[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    return {start: next(line for line in cells if line[0].startswith(start)) for start in MODULES}


def test_every_row_has_modules_and_every_module_a_row(rows: dict[str, list[str]], repository: Path) -> None:
    page = (repository / "docs" / "hlo_features.md").read_text("utf-8")
    listed = re.findall(
        r"^\| (?!feature|-)", page.split("| feature | read")[1].split("\n\n")[0], re.MULTILINE
    )
    assert len(rows) == len(listed)
    assert all(len(row) == 5 for row in rows.values())
    assert {name for names in MODULES.values() for name in names} == {*NAMES}


@pytest.mark.parametrize("start", sorted(MODULES))
def test_what_a_row_says_is_so(start: str, rows: dict[str, list[str]]) -> None:
    _, read, counted, _, priced = rows[start]
    assert read.startswith(("yes", "refused"))
    for name in MODULES[start]:
        module = read_module(CORPUS / f"{name}.hlo")
        if name in NOT_AS_XLA:
            assert "XLA" in counted, name
        program = PreparedProgram(inline_fusions(module), name)
        outside = [outside_instruction(kernel.kernel) is not None for kernel in program.unique_kernels]
        is_outside = priced in {NOTHING, "see collectives"}
        assert any(outside) == (is_outside and name not in NO_KERNEL), name


@pytest.mark.parametrize("start", sorted(REFUSED))
def test_what_is_called_refused_is_refused(start: str, rows: dict[str, list[str]]) -> None:
    assert "refused" in rows[start][1]
    lines = ["HloModule m", "", "ENTRY main {", "  p = f32[8,8,4,4]{3,2,1,0} parameter(0)"]
    lines += ["  q = f32[3,3,4,4]{3,2,1,0} parameter(1)", f"  ROOT r = {REFUSED[start]}", "}"]
    with pytest.raises(HloError, match="line 6"):
        module_from_text("\n".join(lines), where="m")
