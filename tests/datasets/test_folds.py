"""Folds over applications, on drawn corpora and on the one of the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costbench.datasets.folds import (
    FoldsParams,
    connected_groups,
    expanded,
    fold_names,
    fold_splits,
    listed_split,
)
from costbench.datasets.splits import ProgramInfo, Split, builder_of
from costbench.errors import DataError
from costbench.programs.manifest import load_manifest


@st.composite
def corpora(draw: st.DrawFn) -> list[ProgramInfo]:
    """Up to 40 programs of up to 12 applications, from up to 20 builders; some builders are unknown."""
    pairs = draw(
        st.lists(
            st.tuples(st.integers(0, 11), st.one_of(st.none(), st.integers(0, 19))), min_size=4, max_size=40
        )
    )
    return [
        ProgramInfo(f"p{i}", f"application {family}", "" if builder is None else f"b{builder}(size={i})")
        for i, (family, builder) in enumerate(pairs)
    ]


def shares(one: ProgramInfo, other: ProgramInfo) -> bool:
    return one.application == other.application or (
        builder_of(one) != "" and builder_of(one) == builder_of(other)
    )


def reachable(programs: Sequence[ProgramInfo]) -> set[frozenset[str]]:
    """Groups by brute force: the closure of `shares`, grown from every program until nothing is added."""
    found = set()
    for start in programs:
        group = {start}
        while more := {p for p in programs if p not in group and any(shares(p, q) for q in group)}:
            group |= more
        found.add(frozenset(program.name for program in group))
    return found


@given(corpora())
def test_groups_are_those_that_a_chain_of_shared_names_joins(programs: list[ProgramInfo]) -> None:
    groups = connected_groups(programs)
    assert {frozenset(names) for names in groups.values()} == reachable(programs)
    assert sum(map(len, groups.values())) == len(programs)
    # A group is called after its first application.
    families = {program.name: program.application for program in programs}
    assert all(name == min(families[one] for one in members) for name, members in groups.items())


def check(programs: Sequence[ProgramInfo], splits: Sequence[Split], num_validation: int) -> None:
    """What every division into folds has to keep."""
    by_name = {program.name: program for program in programs}
    tested = [name for split in splits for name in split.test]
    assert sorted(tested) == sorted(by_name), "every program is tested once"
    largest = max(map(len, connected_groups(programs).values()))
    capacity = -(-len(programs) // len(splits))
    for split in splits:
        parts = split.train, split.validation, split.test
        assert sorted(name for part in parts for name in part) == sorted(by_name)
        assert capacity - max(largest, len(splits)) <= len(split.test) <= capacity + largest
        assert 0 < len(split.validation) <= num_validation
        for i, own in enumerate(parts):
            for other in parts[i + 1 :]:
                assert not any(shares(by_name[a], by_name[b]) for a in own for b in other)


@given(corpora(), st.integers(2, 5), st.integers(0, 10**6), st.integers(1, 8), st.data())
def test_folds_of_any_corpus(
    programs: list[ProgramInfo], k: int, seed: int, num_validation: int, data: st.DataObject
) -> None:
    groups = connected_groups(programs)
    assume(len(groups) >= k)
    try:
        splits = fold_splits(programs, k, seed, num_validation)
    except DataError as error:
        # Too few small groups: nothing to validate on, or nothing else to train on.
        assert error.field in ("num_validation", "train", "test")
        return
    check(programs, splits, num_validation)
    assert fold_splits(data.draw(st.permutations(programs)), k, seed, num_validation) == splits


@pytest.fixture
def corpus(repository: Path) -> list[ProgramInfo]:
    entries = load_manifest(repository / "data" / "programs")
    return [ProgramInfo(entry.name, entry.application, entry.builder) for entry in entries]


@pytest.mark.parametrize("k", [2, 4, 5, 8])
def test_folds_of_the_corpus(corpus: list[ProgramInfo], k: int) -> None:
    for seed in range(5):
        splits = fold_splits(corpus, k, seed, 8)
        check(corpus, splits, 8)
        sizes = [len(split.test) for split in splits]
        # Groups of one and two programs fill what large ones leave.
        assert max(sizes) - min(sizes) <= 4 or k == 8
        assert all(len(split.validation) >= 7 for split in splits)
    # A fold of the ResNets and one more family may be drawn twice.
    assert len({fold_splits(corpus, k, seed, 8)[0].test for seed in range(10)}) >= 8


def moved(before: Sequence[Split], after: Sequence[Split]) -> int:
    """Number of programs that another fold tests."""
    place = {name: split.name for split in before for name in split.test}
    return sum(place.get(name, split.name) != split.name for split in after for name in split.test)


def test_a_new_program_moves_few_others(corpus: list[ProgramInfo]) -> None:
    before = fold_splits(corpus, 4, 0, 8)
    families = sorted({program.application for program in corpus})
    counts = [
        moved(before, fold_splits([*corpus, ProgramInfo("newcomer", family)], 4, 0, 8))
        for family in [*families, "An application of its own"]
    ]
    # Three of four programs, about 100, would move if the folds were drawn again.
    assert sorted(counts)[len(counts) // 2] <= 2
    assert max(counts) <= 12


@pytest.mark.parametrize(
    ("k", "num_validation", "problem"),
    [
        (1, 1, "folds: k: 1 folds of 3 groups"),
        (4, 1, "folds: k: 4 folds of 3 groups"),
        (3, 1, "fold1: num_validation: no group of at most 1 programs"),
        (2, 9, "split fold1: train: no program"),
    ],
)
def test_impossible_folds(k: int, num_validation: int, problem: str) -> None:
    programs = [ProgramInfo(f"{family}{i}", family) for family in "abc" for i in range(2)]
    with pytest.raises(DataError, match=problem):
        fold_splits(programs, k, 0, num_validation)


def test_programs_have_different_names() -> None:
    with pytest.raises(DataError, match="two programs are called p"):
        fold_splits([ProgramInfo("p", "a"), ProgramInfo("p", "b")], 2, 0, 1)


def test_names_of_folds() -> None:
    assert fold_names(3) == ("fold1", "fold2", "fold3")
    assert expanded(("random", "folds", "manual"), 2) == ("random", "fold1", "fold2", "manual")
    assert [listed_split(name) for name in ("fold1", "fold12", "random", "fold0", "folds")] == [
        "folds", "folds", "random", "fold0", "folds",
    ]  # fmt: skip


@pytest.mark.parametrize("values", [(1, 0, 8), (4, 0, 0)])
def test_impossible_parameters(values: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        FoldsParams(*values)
