"""What the stage adds to the library's splits: a user's programs are tested on, never trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.datasets.splits import ProgramInfo
from costbench.errors import ParamsError
from costbench.experiments.stages.split import (
    ManualSplitParams,
    RandomSplitParams,
    SplitParams,
    make_split,
)

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
    without = make_split(_params(), name, PROGRAMS, Path("p.yaml"))
    with_own = make_split(_params(), name, (*PROGRAMS, OWN), Path("p.yaml"))
    assert with_own.test == tuple(sorted((*without.test, "user_mine")))
    assert (with_own.train, with_own.validation) == (without.train, without.validation)


def test_programs_built_like_tested_ones_are_dropped() -> None:
    builders = ("cell(size=1)", "cell()", "cell(size=2)", "other()", "", "", "", "")
    programs = tuple(
        ProgramInfo(program.name, program.application, builder)
        for program, builder in zip(PROGRAMS, builders, strict=True)
    )
    split = make_split(_params(), "manual", programs, Path("p.yaml"))
    assert split.dropped == ("p1", "p2")
    assert "cell" in split.reasons["p2"]


def test_impossible_splits_name_the_parameter() -> None:
    random = RandomSplitParams(seed=0, num_validation=1, num_test=2, test_applications=("Nothing",))
    with pytest.raises(ParamsError, match=r"p\.yaml: split\.random\.test_applications: no program"):
        make_split(_params(random=random), "random", PROGRAMS, Path("p.yaml"))


def test_splits_have_different_names() -> None:
    with pytest.raises(ValueError, match="different"):
        _params(names=("random", "random"))
