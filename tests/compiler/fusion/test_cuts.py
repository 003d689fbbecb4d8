from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import I16
from costbench.compiler.fusion.cuts import NO_KERNEL, UNKNOWN, CutConfig, FusionCuts, HashNumbers
from costbench.compiler.fusion.space import FusionSpace, fusion_space
from costbench.compiler.kernel import Kernel
from costbench.hlo.reader import read_module
from tests.hlo.builder import ModuleBuilder

PROGRAMS = Path(__file__).resolve().parents[3] / "data" / "programs"
BIG = "f32[256,1024]"


def diamond() -> FusionSpace:
    """exponential -> (tanh, negate) -> add -> reduce; edges e-t, e-n, t-a, n-a, a-r and the siblings t-n."""
    b = ModuleBuilder()
    e = b.op("exponential", b.parameter(BIG))
    return fusion_space(b.build(b.reduce(b.op("add", b.op("tanh", e), b.op("negate", e)), (1,))), "diamond")


def real(name: str) -> FusionSpace:
    return fusion_space(read_module(PROGRAMS / f"{name}.hlo.pb.zst"), name)


def views(cuts: FusionCuts, kernels: dict[int, Kernel], cut: CutConfig) -> Counter[tuple[str, int]]:
    """Fingerprints of a config's kernels with how often each kernel runs, and how often it occurs."""
    found: Counter[tuple[str, int]] = Counter()
    for numbers, trips in zip(cut.kernels, cut.trip_counts, strict=True):
        for number in numbers[numbers != NO_KERNEL].tolist():
            if number not in kernels:
                kernels[number] = cuts.take(number)
            found[kernels[number].fingerprint, trips] += 1
    return found


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
