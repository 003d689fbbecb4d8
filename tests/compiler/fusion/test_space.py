from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import I16
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.space import NO_KERNEL, CutConfig, FusionCuts, FusionSpace, fusion_space
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_hashes import UNKNOWN, HashNumbers, SeenHashes
from costbench.compiler.program import CompiledProgram, compile_program
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from tests.hlo.builder import ModuleBuilder

PROGRAMS = Path(__file__).resolve().parents[3] / "data" / "programs"
REAL = ("alexnet_b128_train_f32", "nmt_b32_infer_f32", "small_bert_L2_H128_b64_train_bf16")
BIG = "f32[256,1024]"


def program(name: str) -> HloModule:
    return read_module(PROGRAMS / f"{name}.hlo.pb.zst")


def real(name: str) -> FusionSpace:
    return fusion_space(program(name), name)


def diamond() -> FusionSpace:
    """exponential -> (tanh, negate) -> add -> reduce; edges e-t, e-n, t-a, n-a, a-r and the siblings t-n."""
    b = ModuleBuilder()
    e = b.op("exponential", b.parameter(BIG))
    return fusion_space(b.build(b.reduce(b.op("add", b.op("tanh", e), b.op("negate", e)), (1,))), "diamond")


def opcodes(compiled: CompiledProgram) -> list[list[str]]:
    kernels = []
    for kernel in compiled.kernels:
        names = [kernel.instruction(p).opcode.xla_name for p in kernel.instructions]
        kernels.append([name for name in names if name != "constant"])
    return kernels


def same_kernels(first: CompiledProgram, second: CompiledProgram) -> bool:
    views = [
        [(k.computation, k.instructions, k.inputs, k.outputs, k.trip_count) for k in p.kernels]
        for p in (first, second)
    ]
    return sorted(views[0]) == sorted(views[1])


@pytest.mark.parametrize("name", REAL)
def test_the_default_config_gives_what_the_heuristic_gives(name: str) -> None:
    space = real(name)
    assert len(space.default) == len(space.num_choices) > 100
    assert same_kernels(space.compile(space.default), compile_program(program(name), name))


def test_every_config_of_a_small_program_by_hand() -> None:
    space = diamond()
    # Six edges: e-t, e-n, t-a, n-a, a-r, and the siblings t-n.
    assert space.num_choices.tolist() == [2] * 6
    outcomes = {
        str(opcodes(space.compile(np.array(c, np.int16)))) for c in itertools.product((0, 1), repeat=6)
    }
    alone = [["exponential"], ["tanh"], ["negate"], ["add"], ["reduce"]]
    assert str(alone) in outcomes
    assert str([["exponential", "tanh", "negate", "add", "reduce"]]) in outcomes
    assert str([["exponential"], ["tanh", "negate"], ["add"], ["reduce"]]) in outcomes
    # A kernel of exponential and add alone would wait for tanh, and tanh for it.
    assert not any("['exponential', 'add']" in outcome for outcome in outcomes)
    assert opcodes(space.compile(np.zeros(6, np.int16))) == alone


@pytest.mark.parametrize("name", REAL)
def test_whatever_is_drawn_computes_every_value_once_in_an_order_that_runs(name: str) -> None:
    space = real(name)
    expected = opcodes_that_run_once(space.compile(space.default))
    for config in space.sample(np.random.default_rng(1), 6):
        compiled = space.compile(config)  # verifies the order
        assert opcodes_that_run_once(compiled) == expected
        for kernel in compiled.kernels:
            anchors = [
                p
                for p in kernel.instructions
                if kernel.instruction(p).opcode in (Opcode.DOT, Opcode.CONVOLUTION)
            ]
            assert len(anchors) <= 1


def opcodes_that_run_once(compiled: CompiledProgram) -> list[tuple[int, int]]:
    """Contractions and reductions by place: never duplicated, never lost."""
    counted = (Opcode.DOT, Opcode.CONVOLUTION, Opcode.REDUCE, Opcode.EXPONENTIAL)
    return sorted(
        (k.computation, p)
        for k in compiled.kernels
        for p in k.instructions
        if k.instruction(p).opcode in counted
    )


@pytest.mark.parametrize("name", REAL)
def test_hashes_are_equal_exactly_where_fingerprints_are(name: str) -> None:
    space = real(name)
    fingerprints = ModuleFingerprints(space.module)
    by_hash: dict[int, set[str]] = {}
    names: set[str] = set()
    for config in (space.default, *space.sample(np.random.default_rng(2), 4)):
        for cut in space.cut(config):
            for number, quick in enumerate(cut.hashes.tolist()):
                kernel = space.kernel(cut, number)
                fingerprint = fingerprints.subgraph(
                    kernel.computation, kernel.inputs, kernel.instructions, kernel.outputs
                )
                by_hash.setdefault(quick, set()).add(fingerprint)
                names.add(fingerprint)
    assert all(len(fingerprint) == 1 for fingerprint in by_hash.values())
    assert len(by_hash) == len(names) > 100


def test_a_cut_and_a_compile_are_the_same_kernels() -> None:
    space = real(REAL[0])
    config = space.sample(np.random.default_rng(3), 1)[0]
    cut = [space.kernel(c, i) for c in space.cut(config) for i in range(len(c.hashes))]
    compiled = space.compile(config).kernels
    assert [(k.instructions, k.inputs, k.outputs, k.trip_count) for k in cut] == [
        (k.instructions, k.inputs, k.outputs, k.trip_count) for k in compiled
    ]


@pytest.mark.parametrize("name", REAL)
def test_what_was_cut_before_is_left_out_and_nothing_else(name: str) -> None:
    space, met = real(name), SeenHashes()
    seen: set[tuple[int, tuple[int, ...]]] = set()
    again = 0
    for config in (space.default, *space.sample(np.random.default_rng(7), 6), space.default):
        views = [
            [
                (kernel.computation, kernel.instructions, kernel.inputs, kernel.outputs)
                for cut in cuts
                for number in range(len(cut.hashes))
                for kernel in [space.kernel(cut, number)]
            ]
            for cuts in (space.cut(config), space.cut(config, met))
        ]
        # One group of instructions, one kernel: in a search, what runs inside names it.
        expected = [view for view in views[0] if view[:2] not in seen]
        again += len(views[0]) - len(expected)
        assert views[1] == expected
        seen.update(view[:2] for view in views[0])
    assert views[1] == []
    assert again > 100


def some_space() -> FusionSpace:
    return real(REAL[1])


def test_draws_depend_on_the_generator_alone_and_are_legal() -> None:
    space = some_space()
    first, again = (space.sample(np.random.default_rng(4), 5) for _ in range(2))
    assert first.dtype == np.int16
    assert (first == again).all()
    assert space.legal(first).all()
    assert len({config.tobytes() for config in first}) == 5
    assert space.sample(np.random.default_rng(4), 0).shape == (0, len(space.default))


def test_neighbours_differ_in_one_edge_each_in_another() -> None:
    space = some_space()
    near = space.neighbours(space.default, np.random.default_rng(5), 7)
    changed = near != space.default
    assert near.shape == (7, len(space.default))
    assert (changed.sum(axis=1) == 1).all()
    assert len({int(row.argmax()) for row in changed}) == 7
    everything = space.neighbours(space.default, np.random.default_rng(5), 10**6)
    assert len(everything) == len(space.default)


def test_a_child_has_every_edge_from_one_of_its_parents() -> None:
    space = some_space()
    zeros, ones = (np.full(len(space.default), value, dtype=np.int16) for value in (0, 1))
    children = [space.crossover(zeros, ones, np.random.default_rng(seed)) for seed in range(8)]
    assert space.legal(np.stack(children)).all()
    assert len({int(child.sum()) for child in children}) > 4
    assert all((np.diff(child) != 0).sum() <= 2 for child in children)
    assert not zeros.any()


@pytest.mark.parametrize(
    "configs",
    [np.full((2, 3), 0, np.int16), np.zeros(4, np.int16)],
    ids=["too few edges", "one vector"],
)
def test_what_is_no_config_of_the_program_is_illegal(configs: I16) -> None:
    assert not some_space().legal(configs).any()


def test_values_other_than_bools_are_illegal_and_other_lengths_are_refused() -> None:
    space = some_space()
    wrong = space.default[None].copy()
    wrong[0, 0] = 2
    assert space.legal(wrong).tolist() == [False]
    with pytest.raises(ValueError, match=r"config of shape \(3,\)"):
        space.cut(np.zeros(3, np.int16))


def views(cuts: FusionCuts, kernels: dict[int, Kernel], cut: CutConfig) -> Counter[tuple[str, int]]:
    """Fingerprints of a config's kernels with how often each kernel runs, and how often it occurs."""
    occurrences: Counter[tuple[str, int]] = Counter()
    for numbers, trips in zip(cut.kernels, cut.trip_counts, strict=True):
        for number in numbers[numbers != NO_KERNEL].tolist():
            if number not in kernels:
                kernels[number] = cuts.take(number)
            occurrences[kernels[number].fingerprint, trips] += 1
    return occurrences


def expected(space: FusionSpace, config: I16) -> Counter[tuple[str, int]]:
    return Counter((k.fingerprint, k.trip_count) for k in space.compile(config).kernels)


def test_kernels_are_numbered_as_they_are_met() -> None:
    space = diamond()
    cuts = FusionCuts(space)
    apart = cuts.cut(np.zeros(6, dtype=np.int16))
    # exponential, tanh, negate, add and the sum: five kernels; the parameter and the zero make none.
    assert sorted(set(apart.kernels[0].tolist()) - {NO_KERNEL}) == [1, 2, 3, 4, 5]
    assert len(cuts) == 6
    together = cuts.cut(np.ones(6, dtype=np.int16))
    assert sorted(set(together.kernels[0].tolist()) - {NO_KERNEL}) == [6]
    assert cuts.take(6).fingerprint != cuts.take(1).fingerprint
    with pytest.raises(KeyError):
        cuts.take(6)


def test_configs_that_give_the_same_kernels_have_one_key() -> None:
    # exponential-tanh and tanh-add fused: the edge between exponential and add adds nothing there is.
    cuts = FusionCuts(diamond())
    keys = {bytes(config): cuts.cut(config).key for config in np.eye(6, dtype=np.int16)}
    assert len(set(keys.values())) > 3
    assert cuts.cut(np.zeros(6, dtype=np.int16)).key not in keys.values()
    again = FusionCuts(diamond())
    assert again.cut(np.ones(6, dtype=np.int16)).key == again.cut(np.array([1, 1, 1, 1, 1, 0], np.int16)).key


@pytest.mark.parametrize("name", ["rnn_char_b64_infer_f32", "alexnet_b128_train_f32", "nmt_b32_infer_f32"])
def test_a_walk_gives_what_compiling_gives(name: str) -> None:
    space = real(name)
    cuts, kernels = FusionCuts(space), dict[int, Kernel]()
    rng = np.random.default_rng(0)
    config = space.default
    for _ in range(12):
        assert views(cuts, kernels, cuts.cut(config)) == expected(space, config)
        config = space.neighbours(config, rng, 1)[0]
    for config in space.sample(rng, 6):
        assert views(cuts, kernels, cuts.cut(config)) == expected(space, config)


def test_hashes_do_not_depend_on_what_was_met_before() -> None:
    space = real("rnn_char_b64_infer_f32")
    configs = space.sample(np.random.default_rng(1), 4)
    forwards, backwards = FusionCuts(space), FusionCuts(space)
    hashes = [
        [sorted(cuts.hashes[cut.kernels[0]].tolist()) for cut in (cuts.cut(c) for c in order)]
        for cuts, order in ((forwards, configs), (backwards, configs[::-1]))
    ]
    assert hashes[0] == hashes[1][::-1]


def test_numbers_by_hash_are_those_of_a_dictionary() -> None:
    rng, table, expected = np.random.default_rng(0), HashNumbers(), dict[int, int]()
    # Few different low digits, so that hashes meet in the table; enough of them for it to grow.
    hashes = rng.permutation(np.arange(1, 3001, dtype=np.uint64)) << np.uint64(5)
    for part in np.array_split(hashes, 40):
        assert (table.find(part) == UNKNOWN).all()
        numbers = rng.integers(0, 100, size=len(part))
        table.add(part, numbers)
        expected.update(zip(part.tolist(), numbers.tolist(), strict=True))
    assert table.find(hashes).tolist() == [expected[value] for value in hashes.tolist()]
    assert table.find(np.zeros(0, dtype=np.uint64)).tolist() == []


def test_the_hash_0_has_a_number_too() -> None:
    table = HashNumbers()
    zero = np.zeros(1, dtype=np.uint64)
    assert table.find(zero).tolist() == [UNKNOWN]
    table.add(zero, np.array([7]))
    assert table.find(zero).tolist() == [7]
