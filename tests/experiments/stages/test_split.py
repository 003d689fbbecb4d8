"""What the stage adds to the library's splits, and what it writes from shards and a manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from costbench.artifacts import read_json
from costbench.datasets.record_types import FUSION
from costbench.datasets.splits import FoldsParams, ProgramInfo, read_split
from costbench.datasets.storage import write_shard
from costbench.errors import DataError, ParamsError
from costbench.experiments.identity import StageIdentity, write_identity
from costbench.experiments.stages.split import (
    ManualSplitParams,
    RandomSplitParams,
    SplitParams,
    make_splits,
    run,
)
from costbench.programs.manifest import ProgramEntry, save_manifest
from tests.datasets.tile_columns import fusion_columns, metadata, tile_columns

PROGRAMS = tuple(ProgramInfo(f"p{i}", f"application {i // 2}") for i in range(8))
OWN = ProgramInfo("user_mine", "user:mine")


def _params(**changes: object) -> SplitParams:
    random = RandomSplitParams(seed=0, num_validation=1, num_test=2, test_applications=("application 1",))
    manual = ManualSplitParams(
        seed=0,
        num_validation=1,
        test_programs=("p0",),
        held_out_applications=("application 0",),
        dropped=(),
    )
    values = {"names": ("random", "manual"), "random": random, "manual": manual, **changes}
    return SplitParams(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["random", "manual"])
def test_own_programs_are_added_to_the_test_set(name: str) -> None:
    (without,) = make_splits(_params(), name, PROGRAMS, Path("p.yaml"))
    (with_own,) = make_splits(_params(), name, (*PROGRAMS, OWN), Path("p.yaml"))
    assert with_own.test == tuple(sorted((*without.test, "user_mine")))
    assert (with_own.train, with_own.validation) == (without.train, without.validation)


def test_own_programs_are_tested_in_the_first_fold_and_train_none() -> None:
    section = _params(names=("folds",), folds=FoldsParams(k=2, seed=0, num_validation=2))
    without = make_splits(section, "folds", PROGRAMS, Path("p.yaml"))
    first, second = make_splits(section, "folds", (*PROGRAMS, OWN), Path("p.yaml"))
    assert first.test == tuple(sorted((*without[0].test, "user_mine")))
    assert (first.train, first.validation) == (without[0].train, without[0].validation)
    assert second == without[1]


def test_programs_built_like_tested_ones_are_dropped() -> None:
    builders = ("cell(size=1)", "cell()", "cell(size=2)", "other()", "", "", "", "")
    programs = tuple(
        ProgramInfo(program.name, program.application, builder)
        for program, builder in zip(PROGRAMS, builders, strict=True)
    )
    (split,) = make_splits(_params(), "manual", programs, Path("p.yaml"))
    assert split.dropped == ("p1", "p2")
    assert "cell" in split.reasons["p2"]


def test_impossible_splits_name_the_parameter() -> None:
    random = RandomSplitParams(seed=0, num_validation=1, num_test=2, test_applications=("Nothing",))
    with pytest.raises(ParamsError, match=r"p\.yaml: split\.random\.test_applications: no program"):
        make_splits(_params(random=random), "random", PROGRAMS, Path("p.yaml"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"folds": FoldsParams(5, 0, 1)}, r"p\.yaml: split\.folds\.k: 5 folds of 4 groups"),
        ({"folds": FoldsParams(2, 0, 1)}, r"p\.yaml: split\.folds\.num_validation: no group of at most 1"),
        ({}, r"p\.yaml: split\.folds: missing"),
    ],
)
def test_impossible_folds_name_the_parameter(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ParamsError, match=problem):
        make_splits(_params(**changes), "folds", PROGRAMS, Path("p.yaml"))


def test_folds_need_their_key() -> None:
    with pytest.raises(ValueError, match="the key folds is missing"):
        _params(names=("folds",))


def test_splits_have_different_names() -> None:
    with pytest.raises(ValueError, match="different"):
        _params(names=("random", "random"))


# Program -> application, builder, fingerprints of its kernels.
_CORPUS = {
    "a": ("Smart", "smart()", [1, 2, 3]),
    "b": ("Other", "smart(size=2)", [2, 9]),
    "c": ("Other", "other()", [3, 4, 5, 6]),
    "d": ("Third", "third()", [7]),
}


def _entry(name: str, application: str, builder: str) -> ProgramEntry:
    texts = dict.fromkeys(ProgramEntry.__annotations__, "")
    values: dict[str, Any] = {
        **texts,
        "name": name,
        "application": application,
        "builder": builder,
        "batch": 1,
        "instructions": 1,
        "file": f"{name}.pb",
    }
    return ProgramEntry(**values)


def _write_tiles(folder: Path, corpus: Mapping[str, tuple[str, str, list[int]]]) -> None:
    """The manifest and the shards of tile sizes of a corpus."""
    entries = [_entry(name, application, builder) for name, (application, builder, _) in corpus.items()]
    (folder / "programs").mkdir(exist_ok=True)
    save_manifest(folder / "programs", entries, {})
    for name, (application, _, fingerprints) in corpus.items():
        columns = tile_columns([2] * len(fingerprints), fingerprints=fingerprints)
        path = folder / "out" / "generate" / "tile" / "tpu_v2" / f"{name}.arrow"
        write_shard(path, columns, metadata(name, application, "tpu_v2"))


@pytest.fixture
def params(tmp_path: Path) -> Path:
    """A parameter file beside a manifest and the shards of four programs, one of them with fusion data."""
    made = tmp_path / "out" / "generate"
    _write_tiles(tmp_path, _CORPUS)
    for name in ("a", "c"):
        application, _, fingerprints = _CORPUS[name]
        for part in (0, 1):
            columns = fusion_columns(fingerprints, [1] * len(fingerprints), [10] * len(fingerprints))
            path = made / "fusion" / "tpu_v2" / f"{name}.{part}.arrow"
            write_shard(path, columns, metadata(name, application, "tpu_v2"), FUSION)
    write_identity(made, StageIdentity("p", "d", "c"))
    sections = {
        "run": {
            "name": "test",
            "root": ".",
            "params": "params.yaml",
            "out": "out",
            "reports": "reports",
            "programs": "programs",
            "jobs": 1,
        },
        "split": {
            "names": ["random", "manual"],
            "random": {"seed": 0, "num_validation": 1, "num_test": 1, "test_applications": ["Third"]},
            "manual": {
                "seed": 0,
                "num_validation": 0,
                "test_programs": ["a"],
                "held_out_applications": ["Smart"],
                "dropped": [],
            },
        },
    }
    (tmp_path / "params.yaml").write_text(json.dumps(sections))
    return tmp_path / "params.yaml"


def _read(params: Path, name: str) -> Any:
    return read_json(params.parent / "out" / "split" / name)


def test_the_stage_infers_relations_and_counts_each_task(params: Path) -> None:
    run(params)
    manual = read_split(params.parent / "out" / "split" / "manual.json")
    assert (manual.train, manual.test, manual.dropped) == (("c", "d"), ("a",), ("b",))
    assert list(manual.reasons) == ["b"]
    assert "Smart" in manual.reasons["b"]
    leaks = _read(params, "leakage.json")
    # Of 1, 2 and 3, only 3 is in c: 2 is in b alone, which is dropped.
    assert leaks["tile"]["manual"]["tpu_v2"]["test"]["leaked_kernels"] == 1
    # Two parts of a, each with the kernel that is in c.
    fusion = leaks["fusion"]["manual"]["tpu_v2"]["test"]
    assert (fusion["kernels"], fusion["leaked_kernels"], fusion["share_of_runtime"]) == (6, 2, 1 / 3)
    counts = _read(params, "counts.json")
    assert counts["tile"]["manual"]["tpu_v2"]["train"] == {"programs": 2, "kernels": 5, "samples": 10}
    assert counts["fusion"]["manual"]["tpu_v2"]["train"] == {"programs": 1, "kernels": 8, "samples": 8}
    card = _read(params, "card.json")
    assert sorted(card) == ["fusion", "tile"]
    assert (card["tile"]["tpu_v2"]["programs"], card["fusion"]["tpu_v2"]["programs"]) == (4, 2)


def test_folds_are_counted_each_and_audited_together(params: Path) -> None:
    # a and b share a builder, b and c an application: they are one group of three. The others stand alone.
    corpus = _CORPUS | {name: (name, "", [ord(name), number]) for number, name in enumerate("efgh", 4)}
    _write_tiles(params.parent, corpus)
    sections = json.loads(params.read_text())
    sections["split"] |= {"names": ["random", "folds"], "folds": {"k": 2, "seed": 0, "num_validation": 1}}
    params.write_text(json.dumps(sections))
    folder = params.parent / "out" / "split"
    folder.mkdir()
    (folder / "fold3.json").write_text("of an earlier run")
    run(params)
    assert sorted(path.name for path in folder.glob("fold*.json")) == ["fold1.json", "fold2.json"]
    splits = {name: read_split(folder / f"{name}.json") for name in ("fold1", "fold2")}
    assert {frozenset("abc") <= set(split.test) for split in splits.values()} == {True, False}
    leaks, counts = _read(params, "leakage.json")["tile"], _read(params, "counts.json")["tile"]
    assert (sorted(leaks), sorted(counts)) == (["folds", "random"], ["fold1", "fold2", "random"])
    expected = {
        name: sum(
            kernel in {one for other in split.train for one in corpus[other][2]} for kernel in corpus[name][2]
        )
        for split in splits.values()
        for name in split.test
    }
    audit = leaks["folds"]["tpu_v2"]
    assert {name: one["leaked_kernels"] for name, one in audit["by_program"].items()} == expected
    assert sum(expected.values()) > 0
    assert (audit["split"], audit["test"]["leaked_kernels"]) == ("folds", sum(expected.values()))
    assert audit["test"]["kernels"] == sum(len(kernels) for _, _, kernels in corpus.values())
    for name, split in splits.items():
        assert counts[name]["tpu_v2"]["test"]["programs"] == len(split.test)


def test_shards_of_a_program_that_is_gone(params: Path) -> None:
    save_manifest(params.parent / "programs", [_entry("a", "Smart", "smart()")], {})
    with pytest.raises(DataError, match="no program 'b', but shards of it"):
        run(params)


def test_shards_must_be_there(params: Path) -> None:
    for path in (params.parent / "out" / "generate").rglob("*.arrow"):
        path.unlink()
    with pytest.raises(DataError, match="no shards"):
        run(params)
