"""Stage `split`: divide the programs into sets, audit them for leaks, and write the data set's card.

A user's own programs are always tested on and never trained on: that is what they were brought for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from costbench.artifacts import write_json
from costbench.datasets.splits import ProgramInfo, Split, manual_split, random_split, write_split
from costbench.datasets.storage import Shard, list_shards, verify_shard
from costbench.datasets.validation import dataset_card, leakage_audit
from costbench.errors import CostbenchError, DataError, ParamsError
from costbench.experiments.identity import identify, read_identity, write_identity
from costbench.experiments.workspace import load_workspace
from costbench.params import load_section

_log = logging.getLogger(__name__)
_USER = "user:"


@dataclass(frozen=True)
class RandomSplitParams:
    """Test programs drawn at random, one from each of some applications.

    Attributes:
        seed: of the draws.
        num_validation: programs to choose models by.
        num_test: programs to report on.
        test_applications: applications that get a test program each.
    """

    seed: int
    num_validation: int
    num_test: int
    test_applications: tuple[str, ...]


@dataclass(frozen=True)
class ManualSplitParams:
    """Test programs chosen by hand, their applications kept out of training.

    Attributes:
        seed: of the draw of validation programs.
        num_validation: programs to choose models by.
        test_programs: programs to report on.
        held_out_applications: their applications, and others too close to them.
        dropped: further programs too close to them.
    """

    seed: int
    num_validation: int
    test_programs: tuple[str, ...]
    held_out_applications: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class SplitParams:
    """Section `split`.

    Attributes:
        names: splits to make.
        random: unseen programs of known applications.
        manual: unseen applications.
    """

    names: tuple[Literal["random", "manual"], ...]
    random: RandomSplitParams
    manual: ManualSplitParams

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"names are {list(self.names)}, must be one or more different ones")


def run(params: Path) -> None:
    """Write `<split>.json`, `leakage.json` and `card.json`.

    Raises:
        CostbenchError: for parameters that fit no split of the programs, or damaged shards.
    """
    workspace = load_workspace(params)
    section = load_section(params, "split", SplitParams)
    made, folder = workspace.stage("generate"), workspace.stage("split")
    before = read_identity(made)
    by_chip = _shards_by_chip(made / "tile")
    programs = _programs(next(iter(by_chip.values())))
    audits: dict[str, dict[str, object]] = {}
    for name in section.names:
        split = make_split(section, name, programs, params)
        write_split(folder / f"{name}.json", split)
        for chip, shards in by_chip.items():
            report = leakage_audit(split, shards)
            audits.setdefault(name, {})[chip] = report.to_dict()
            _log.info(
                "%s split, %s: %s programs to train, validate, test; %.0f%% of test kernels seen in training",
                name,
                chip,
                "/".join(str(len(part)) for part in (split.train, split.validation, split.test)),
                100 * report.test.share_of_kernels,
            )
    write_json(folder / "leakage.json", audits)
    write_json(folder / "card.json", dataset_card([shard for shards in by_chip.values() for shard in shards]))
    write_identity(folder, identify(section, before.data_digest, before))


def make_split(section: SplitParams, name: str, programs: tuple[ProgramInfo, ...], params: Path) -> Split:
    """The split called `name`; the user's own programs are added to the test set.

    Raises:
        ParamsError: naming the parameter file, if the parameters fit no split of these programs.
    """
    corpus = [program for program in programs if not program.application.startswith(_USER)]
    own = tuple(program.name for program in programs if program.application.startswith(_USER))
    try:
        if name == "random":
            r = section.random
            split = random_split(corpus, r.seed, r.num_validation, r.num_test, r.test_applications)
        else:
            m = section.manual
            split = manual_split(
                corpus, m.test_programs, m.held_out_applications, m.dropped,
                seed=m.seed, num_validation=m.num_validation,
            )  # fmt: skip
    except CostbenchError as error:
        field = f"split.{name}" + (f".{error.field}" if error.field else "")
        raise ParamsError(error.problem, where=params, field=field, expected=error.expected) from error
    return replace(split, test=tuple(sorted((*split.test, *own))))


def _shards_by_chip(folder: Path) -> dict[str, list[Shard]]:
    by_chip: dict[str, list[Shard]] = {}
    for path in list_shards(folder):
        shard = verify_shard(path)
        by_chip.setdefault(str(shard.metadata["chip"]), []).append(shard)
    if not by_chip:
        raise DataError("no shards", where=folder, expected="shards made by the stage `generate`")
    return by_chip


def _programs(shards: list[Shard]) -> tuple[ProgramInfo, ...]:
    infos = (ProgramInfo(str(s.metadata["program"]), str(s.metadata["application"])) for s in shards)
    return tuple(sorted(infos, key=lambda info: info.name))
