"""What holds for every committed program: canonical, no dead inputs, loops of known length, no two alike."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from costbench.hlo.proto import hlo_pb2
from costbench.programs.manifest import ProgramEntry, load_manifest, read_program_bytes

# Decoders that stop when every sentence or sound has ended: how long that takes depends on the data.
DATA_DEPENDENT = {"translate_1", "translate_2", "smartcompose", "char2feats"}
NOT_CANONICAL = {"call", "fusion", "copy", "bitcast", "custom-call", "batch-norm-training", "all-reduce"}
MAX_COMMITTED_BYTES = 12_000_000


@dataclass(frozen=True)
class Facts:
    """What the tests below look at, of one program."""

    opcodes: Counter[str]
    dead_parameters: int
    unknown_trip_counts: int
    loops: int
    types: frozenset[int]


def facts_of(proto: bytes) -> Facts:
    module = hlo_pb2.HloModuleProto.FromString(proto)
    opcodes: Counter[str] = Counter()
    unknown = 0
    types: set[int] = set()
    for computation in module.computations:
        opcodes.update([one.opcode for one in computation.instructions])
        for one in computation.instructions:
            if one.opcode == "while":
                config = json.loads(one.backend_config or b"{}")
                unknown += "known_trip_count" not in config
            elif one.opcode in ("convolution", "dot"):
                types.add(one.shape.element_type)
    entry = next(one for one in module.computations if one.id == module.entry_computation_id)
    used = {operand for one in entry.instructions for operand in one.operand_ids} | {entry.root_id}
    dead = sum(one.opcode == "parameter" and one.id not in used for one in entry.instructions)
    return Facts(opcodes, dead, unknown, opcodes["while"], frozenset(types))


@pytest.fixture(scope="module")
def programs(repository: Path) -> list[tuple[ProgramEntry, Facts]]:
    folder = repository / "data" / "programs"
    return [(entry, facts_of(read_program_bytes(folder, entry))) for entry in load_manifest(folder)]


def test_all_programs_are_canonical(programs: list[tuple[ProgramEntry, Facts]]) -> None:
    opcodes_of = {entry.name: sorted(NOT_CANONICAL & set(facts.opcodes)) for entry, facts in programs}
    assert {name: opcodes for name, opcodes in opcodes_of.items() if opcodes} == {}


def test_rows_count_their_instructions(programs: list[tuple[ProgramEntry, Facts]]) -> None:
    wrong = [entry.name for entry, facts in programs if facts.opcodes.total() != entry.instructions]
    assert wrong == []


def test_every_input_is_used(programs: list[tuple[ProgramEntry, Facts]]) -> None:
    assert {entry.name: facts.dead_parameters for entry, facts in programs if facts.dead_parameters} == {}


def test_loops_have_known_trip_counts_unless_data_decides(
    programs: list[tuple[ProgramEntry, Facts]],
) -> None:
    unknown = {entry.name for entry, facts in programs if facts.unknown_trip_counts}
    assert sum(facts.loops for _, facts in programs) > 80
    assert {name for name in unknown if not name.startswith(tuple(DATA_DEPENDENT))} == set()
    # Those are loops whose end is told by the data: were they unrolled, they would not be listed here.
    assert len(unknown) == len(DATA_DEPENDENT)


def test_arithmetic_is_in_the_precision_that_the_name_says(
    programs: list[tuple[ProgramEntry, Facts]],
) -> None:
    f32, bf16 = 11, 16
    for entry, facts in programs:
        if entry.dtype == "f32":
            assert facts.types <= {f32}, entry.name
        elif facts.types:
            assert bf16 in facts.types, entry.name


def test_no_two_programs_are_alike(programs: list[tuple[ProgramEntry, Facts]]) -> None:
    digests = Counter(entry.sha256 for entry, _ in programs)
    assert [entry.name for entry, _ in programs if digests[entry.sha256] > 1] == []


def test_training_adds_contractions(programs: list[tuple[ProgramEntry, Facts]]) -> None:
    """The backward pass is there: of one model, every training step multiplies more than any inference."""
    by_builder: dict[str, dict[str, list[int]]] = {}
    for entry, facts in programs:
        contractions = facts.opcodes["convolution"] + facts.opcodes["dot"]
        by_builder.setdefault(entry.builder, {}).setdefault(entry.step, []).append(contractions)
    both = {builder: steps for builder, steps in by_builder.items() if len(steps) == 2}
    assert len(both) >= 10
    assert {
        builder: steps for builder, steps in both.items() if min(steps["train"]) <= max(steps["infer"])
    } == {}


def test_the_repository_stays_small(repository: Path) -> None:
    files = list((repository / "data" / "programs").glob("*.zst"))
    assert sum(path.stat().st_size for path in files) < MAX_COMMITTED_BYTES
