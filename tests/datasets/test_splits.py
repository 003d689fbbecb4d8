from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.splits import (
    ProgramInfo,
    Split,
    builder_of,
    manual_split,
    random_split,
    read_split,
    write_split,
)
from costbench.errors import DataError

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
    assert split.reasons["auto_1"] == "built by smartcompose, as is the held-out application SmartCompose"
    assert split.reasons["smart_2"] == "of the held-out application SmartCompose"
    assert split.reasons["vgg"] == "named in the parameters"
    assert sorted(split.reasons) == list(split.dropped)
    # One architecture held out leaves the others of the same function in training.
    assert "vgg" in manual_split(programs, ["resnet"], ["ResNet v1"]).train


def test_sets_restricted_to_what_a_task_has() -> None:
    split = Split("s", ("a", "b"), ("c",), ("d",), ("e",))
    found = split.restricted({"b", "d", "z"})
    assert found == {"train": ("b",), "validation": (), "test": ("d",), "dropped": ()}


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
    assert read_split(tmp_path / "a.json", NAMES) == split
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
        ({**GOOD, "test": ["stranger"]}, "test: unknown program stranger"),
    ],
)
def test_bad_files_name_the_file_and_the_field(tmp_path: Path, content: object, problem: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"split\.json: {problem}|split\.json.*{problem}"):
        read_split(path, {"a", "b"})


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        read_split(tmp_path / "none.json")
