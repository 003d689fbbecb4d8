"""Folds over applications, on drawn corpora and on the one of the manifest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costbench.datasets.splits import (
    FoldsParams,
    ProgramInfo,
    Split,
    builder_of,
    connected_groups,
    expand_folds,
    fold_splits,
    manual_split,
    random_split,
    read_split,
    reported_split,
    write_split,
)
from costbench.errors import DataError
from costbench.programs.manifest import load_manifest

FAMILIES = {"ResNet": 4, "RNN": 3, "WaveRNN": 2, "Ranking": 2, "AutoCompletion": 1}
PROGRAMS = [
    ProgramInfo(f"{family.lower()}_{number}", family)
    for family, count in FAMILIES.items()
    for number in range(count)
]
NAMES = {program.name for program in PROGRAMS}
FAMILY = {program.name: program.application for program in PROGRAMS}


@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(3, 6), st.permutations(PROGRAMS))
def test_random_splits_cover_every_program_once(
    seed: int, num_validation: int, num_test: int, programs: list[ProgramInfo]
) -> None:
    split = random_split(programs, seed, num_validation, num_test, ("RNN", "ResNet", "WaveRNN"))
    assert len(split.validation) == num_validation
    assert len(split.test) == num_test
    assert sorted(split.train + split.validation + split.test) == sorted(NAMES)
    assert {"RNN", "ResNet", "WaveRNN"} <= {FAMILY[name] for name in split.test}
    assert split == random_split(PROGRAMS, seed, num_validation, num_test, ("WaveRNN", "ResNet", "RNN"))


def test_one_test_program_for_each_named_application() -> None:
    split = random_split(PROGRAMS, 3, 2, 3, ("RNN", "ResNet", "WaveRNN"))
    assert sorted(FAMILY[name] for name in split.test) == ["RNN", "ResNet", "WaveRNN"]


def test_other_seeds_draw_other_programs() -> None:
    draws = {random_split(PROGRAMS, seed, 2, 2).test for seed in range(40)}
    assert len(draws) > 20
    # Each of 12 programs is in 1 of 6 test sets of 2: 400 times in 2,400, give or take 4 deviations of 18.
    counts = [0] * len(PROGRAMS)
    for seed in range(2400):
        for name in random_split(PROGRAMS, seed, 0, 2).test:
            counts[[program.name for program in PROGRAMS].index(name)] += 1
    assert min(counts) > 325
    assert max(counts) < 475


def test_a_new_program_moves_few_others() -> None:
    before = random_split(PROGRAMS, 0, 3, 3)
    after = random_split([*PROGRAMS, ProgramInfo("newcomer", "New")], 0, 3, 3)
    assert len(set(before.test) - set(after.test)) <= 1
    assert len(set(before.validation) - set(after.validation)) <= 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((0, 2, 1, ("RNN", "ResNet")), "num_test: 1 test programs for 2 applications"),
        ((0, 2, 2, ("CNN",)), "no program of application 'CNN'.*Ranking"),
        ((0, 2, 13), "cannot draw 13 programs for test from 12"),
        ((0, 11, 2), "cannot draw 11 programs for validation from 10"),
        ((0, 10, 2), "train: no program"),
        ((0, 2, 0), "test: no program"),
        ((0, -1, 2), "cannot draw -1"),
    ],
)
def test_impossible_random_splits(arguments: tuple[int, int, int], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        random_split(PROGRAMS, *arguments)


def test_two_programs_of_one_name_are_refused() -> None:
    with pytest.raises(DataError, match="two programs are called rnn_0"):
        random_split([*PROGRAMS, ProgramInfo("rnn_0", "Other")], 0, 1, 1)


def test_manual_splits_keep_whole_applications_out_of_training() -> None:
    split = manual_split(
        PROGRAMS,
        ["wavernn_1", "ranking_0"],
        ["WaveRNN", "Ranking"],
        ["autocompletion_0"],
        seed=1,
        num_validation=2,
    )
    assert split.test == ("ranking_0", "wavernn_1")
    assert split.dropped == ("autocompletion_0", "ranking_1", "wavernn_0")
    assert len(split.validation) == 2
    assert {FAMILY[name] for name in split.train + split.validation} == {"ResNet", "RNN"}
    assert set().union(*split.sets().values()) == NAMES


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        ("wavernn()", "wavernn"),
        ("wavernn(size=512, features=128)", "wavernn"),
        ("translate(sizes=Sizes(layers=6, heads=4), beams=5)", "translate"),
        # One function for all of Keras' models: there, the architecture tells them apart.
        ("keras_classifier(architecture='ResNet50')", "ResNet50"),
        ("keras_classifier(classes=10, architecture='ResNet50V2')", "ResNet50V2"),
        ("", ""),
        ("by hand", "by hand"),
        ("broken(", "broken"),
    ],
)
def test_what_tells_builders_apart(builder: str, expected: str) -> None:
    assert builder_of(ProgramInfo("p", "Family", builder)) == expected


def test_programs_that_share_a_builder_with_a_held_out_application_are_dropped() -> None:
    programs = [
        ProgramInfo("smart_1", "SmartCompose", "smartcompose()"),
        ProgramInfo("smart_2", "SmartCompose", "completion(size=1)"),
        ProgramInfo("auto_1", "AutoCompletion", "smartcompose(size=8)"),
        ProgramInfo("auto_2", "AutoCompletion", "completion()"),
        ProgramInfo("auto_3", "AutoCompletion", "other()"),
        ProgramInfo("resnet", "ResNet v1", "keras_classifier(architecture='ResNet50')"),
        ProgramInfo("vgg", "VGG", "keras_classifier(architecture='VGG16')"),
        ProgramInfo("mine_1", "One", ""),
        ProgramInfo("mine_2", "SmartCompose", ""),
    ]
    split = manual_split(programs, ["smart_1"], ["SmartCompose"], ["vgg"])
    # The second one's builder is that of a program that is not even tested on. No builder is no relation.
    assert split.dropped == ("auto_1", "auto_2", "mine_2", "smart_2", "vgg")
    assert split.train == ("auto_3", "mine_1", "resnet")
    # A reason names the builder that is shared, and the application.
    assert all(name in split.reasons["auto_1"] for name in ("smartcompose", "SmartCompose"))
    assert "SmartCompose" in split.reasons["smart_2"]
    assert sorted(split.reasons) == list(split.dropped)
    # One architecture held out leaves the others of the same function in training.
    assert "vgg" in manual_split(programs, ["resnet"], ["ResNet v1"]).train


def test_sets_restricted_to_what_a_task_has() -> None:
    split = Split("s", ("a", "b"), ("c",), ("d",), ("e",))
    restricted = split.restricted({"b", "d", "z"})
    assert restricted == {"train": ("b",), "validation": (), "test": ("d",), "dropped": ()}


@pytest.mark.parametrize(
    ("test", "held_out", "dropped", "problem"),
    [
        (["nothing"], ["RNN"], [], "test_programs: unknown program 'nothing'.*rnn_0"),
        (["rnn_0"], ["CNN"], [], "held_out_applications: unknown application 'CNN'.*RNN"),
        (["rnn_0"], ["RNN"], ["odd"], "dropped: unknown program 'odd'"),
        (["rnn_0"], ["ResNet"], [], "rnn_0 is of application 'RNN', which is not held out"),
        (["rnn_0"], list(FAMILIES), [], "train: no program"),
        ([], ["RNN"], [], "test: no program"),
    ],
)
def test_impossible_manual_splits(
    test: list[str], held_out: list[str], dropped: list[str], problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        manual_split(PROGRAMS, test, held_out, dropped)


def test_sets_must_be_disjoint() -> None:
    with pytest.raises(DataError, match="split odd: a, b more than once"):
        Split("odd", ("a", "b"), ("b",), ("a",))
    with pytest.raises(DataError, match="c more than once"):
        Split("odd", ("a", "c", "c"), (), ("b",))


def test_splits_survive_their_file(tmp_path: Path) -> None:
    split = manual_split(PROGRAMS, ["wavernn_1"], ["WaveRNN"], num_validation=2)
    write_split(tmp_path / "a.json", split)
    assert read_split(tmp_path / "a.json") == split
    first = (tmp_path / "a.json").read_bytes()
    write_split(tmp_path / "a.json", read_split(tmp_path / "a.json"))
    assert (tmp_path / "a.json").read_bytes() == first


GOOD = {"name": "x", "train": ["a"], "validation": [], "test": ["b"], "dropped": [], "reasons": {}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "is no split"),
        ({**GOOD, "extra": 1}, "is no split"),
        ({key: value for key, value in GOOD.items() if key != "test"}, "is no split"),
        ({**GOOD, "test": "b"}, "test: is malformed"),
        ({**GOOD, "test": [1]}, "test: is malformed"),
        ({**GOOD, "name": 7}, "name: 7"),
        ({**GOOD, "reasons": {"a": 1}}, "reasons: is malformed"),
        ({**GOOD, "test": ["a"]}, "a more than once"),
        ({**GOOD, "train": []}, "train: no program"),
    ],
)
def test_bad_files_name_the_file_and_the_field(tmp_path: Path, content: object, problem: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"split\.json: {problem}|split\.json.*{problem}"):
        read_split(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: no such split .*split\.names"):
        read_split(tmp_path / "none.json")


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


_builder = cache(builder_of)


def shares(one: ProgramInfo, other: ProgramInfo) -> bool:
    return one.application == other.application or (_builder(one) != "" and _builder(one) == _builder(other))


def reachable(programs: Sequence[ProgramInfo]) -> set[frozenset[str]]:
    """Groups by brute force: the closure of `shares`, grown from every program until nothing is added."""
    names = set()
    for start in programs:
        group = {start}
        while more := {p for p in programs if p not in group and any(shares(p, q) for q in group)}:
            group |= more
        names.add(frozenset(program.name for program in group))
    return names


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
        for i, names in enumerate(parts):
            for other in parts[i + 1 :]:
                assert not any(shares(by_name[a], by_name[b]) for a in names for b in other)


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


@given(corpora(), st.integers(2, 5), st.integers(0, 10**6), st.integers(1, 3), st.data())
def test_random_folds_of_any_corpus(
    programs: list[ProgramInfo], k: int, seed: int, num_validation: int, data: st.DataObject
) -> None:
    assume(len(programs) >= k + num_validation + 2)
    splits = fold_splits(programs, k, seed, num_validation, "random_folds")
    assert [split.name for split in splits] == [f"random_fold{i + 1}" for i in range(k)]
    names = sorted(program.name for program in programs)
    assert sorted(name for split in splits for name in split.test) == names
    for split in splits:
        assert sorted((*split.train, *split.validation, *split.test)) == names
        assert len(split.test) <= -(-len(names) // k)
        assert len(split.validation) == num_validation
    shuffled = data.draw(st.permutations(programs))
    assert fold_splits(shuffled, k, seed, num_validation, "random_folds") == splits


@pytest.fixture
def corpus(repository: Path) -> list[ProgramInfo]:
    entries = load_manifest(repository / "data" / "programs")
    return [ProgramInfo(entry.name, entry.application, entry.builder) for entry in entries]


@pytest.mark.parametrize("k", [2, 4, 5, 8])
def test_folds_of_the_corpus(corpus: list[ProgramInfo], k: int) -> None:
    by_seed = [fold_splits(corpus, k, seed, 8) for seed in range(10)]
    for splits in by_seed[:5]:
        check(corpus, splits, 8)
        sizes = [len(split.test) for split in splits]
        # Groups of one and two programs fill what large ones leave.
        assert max(sizes) - min(sizes) <= 4 or k == 8
        assert all(len(split.validation) >= 7 for split in splits)
    # A fold of the ResNets and one more family may be drawn twice.
    assert len({splits[0].test for splits in by_seed}) >= 8


def moved(before: Sequence[Split], after: Sequence[Split]) -> int:
    """Number of programs that another fold tests."""
    fold_of = {name: split.name for split in before for name in split.test}
    return sum(fold_of.get(name, split.name) != split.name for split in after for name in split.test)


def test_random_folds_divide_applications(corpus: list[ProgramInfo]) -> None:
    applications = {program.name: program.application for program in corpus}
    for split in fold_splits(corpus, 3, 0, 16, "random_folds"):
        trained = {applications[name] for name in split.train}
        known = [name for name in split.test if applications[name] in trained]
        assert len(known) > len(split.test) / 2


def test_a_new_program_moves_few_others_between_folds(corpus: list[ProgramInfo]) -> None:
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
    assert expand_folds(("random", "folds", "manual"), 2) == ("random", "fold1", "fold2", "manual")
    assert expand_folds(("random_folds", "folds"), 1) == ("random_fold1", "fold1")
    assert [reported_split(name) for name in ("fold1", "fold12", "random", "fold0", "folds")] == [
        "folds", "folds", "random", "fold0", "folds",
    ]  # fmt: skip
    assert reported_split("random_fold3") == "random_folds"


@pytest.mark.parametrize("values", [(1, 0, 8), (4, 0, 0)])
def test_impossible_parameters(values: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        FoldsParams(*values)
