"""The synthetic dump is a program, of a size that grows with its layers, and the benchmark measures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.large_dumps import PROGRAMS, main, measure
from benchmarks.synthetic_dumps import llama_dump
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.opcode import Opcode
from costbench.hlo.text.parser import module_from_text


def test_a_dump_has_layers_with_collectives_and_no_two_fusions_alike() -> None:
    one, two, three = (module_from_text(llama_dump(layers), where="dump") for layers in (1, 2, 3))
    grown = two.num_instructions - one.num_instructions
    assert three.num_instructions - two.num_instructions == grown > 70
    # The fusions of a layer, and three functions of scalars and the entry.
    assert len(two.computations) == 2 * 5 + 4
    flat = inline_fusions(two)
    opcodes = [inst.opcode for inst in flat.computations[flat.entry].instructions]
    assert opcodes.count(Opcode.ALL_REDUCE) == 2 * 2
    # Three projections, scores, values, output and the three products of the gated layer.
    assert opcodes.count(Opcode.DOT) == 2 * 9
    assert Opcode.FUSION not in opcodes


def test_measures_are_those_of_the_file(tmp_path: Path) -> None:
    dump = tmp_path / "llama.txt"
    dump.write_text(llama_dump(1))
    found = measure(dump)
    assert found.program == "llama"
    assert found.instructions == module_from_text(llama_dump(1), where="dump").num_instructions
    assert found.kernels > 9
    assert found.read_s > 0.0
    assert found.peak_gb > 0.01


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_program(capsys: pytest.CaptureFixture[str]) -> None:
    main(["dlrm_b2048_infer_f32", "--layers", "1", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["program"] for row in rows] == ["dlrm_b2048_infer_f32", "llama_1_layers"]


def test_programs_are_in_the_corpus(repository: Path) -> None:
    assert all((repository / "data" / "programs" / f"{name}.hlo.pb.zst").is_file() for name in PROGRAMS)
