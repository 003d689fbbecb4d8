"""Stage `split`: divides the programs into sets, audits them for leaks, and writes the data set's card.

A user's own programs are always test programs, since users add programs to see how models do on them. Of
folds, which test a program once, the first one has them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from costbench.artifacts import write_json
from costbench.datasets.card import dataset_card, set_counts
from costbench.datasets.leakage import (
    LeakageReport,
    ProgramShards,
    leakage_audit,
    pool_leakage,
    shards_by_program,
)
from costbench.datasets.recorded_kernels import RECORDED
from costbench.datasets.splits import (
    FOLD_KINDS,
    FoldsParams,
    ProgramInfo,
    Split,
    fold_splits,
    manual_split,
    random_split,
    reported_split,
    write_split,
)
from costbench.datasets.storage import Shard
from costbench.errors import CostbenchError, DataError, ParamsError
from costbench.experiments.identity import identify, read_identity, write_identity
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench.programs.manifest import all_programs, is_of_user
from costbench.tasks import AUDITED, TASKS

_log = logging.getLogger(__name__)
Tree = dict[str, dict[str, object]]


@dataclass(frozen=True)
class RandomSplitParams:
    """Test programs drawn at random, one from each of some applications.

    Attributes:
        seed: seed of the draws.
        num_validation: number of validation programs.
        num_test: number of test programs.
        test_applications: applications that get one test program each.
    """

    seed: int
    num_validation: int
    num_test: int
    test_applications: tuple[str, ...]


@dataclass(frozen=True)
class ManualSplitParams:
    """Test programs chosen by hand, their applications kept out of training.

    Attributes:
        seed: seed of the draw of validation programs.
        num_validation: number of validation programs.
        test_programs: names of the test programs.
        held_out_applications: applications of these, and others that are too similar.
        dropped: further programs that are too similar, where no shared builder shows it.
    """

    seed: int
    num_validation: int
    test_programs: tuple[str, ...]
    held_out_applications: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class SplitParams:
    """Section `split`: how programs are divided into training, validation and test sets.

    Attributes:
        names: splits to make.
        random: unseen programs of known applications.
        manual: unseen applications.
        folds: every program tested once, on unseen applications (`folds`) or drawn at random
            (`random_folds`); needed only where `names` has one of these.
    """

    names: tuple[Literal["random", "manual", "folds", "random_folds"], ...]
    random: RandomSplitParams
    manual: ManualSplitParams
    folds: FoldsParams | None = None

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"names are {list(self.names)}, must be one or more different ones")
        if {*self.names} & {*FOLD_KINDS} and self.folds is None:
            raise ValueError("names have folds, but the key folds is missing: k, seed, num_validation")


def run(params: Path) -> None:
    """Writes `<split>.json`, `leakage.json`, `counts.json` and `card.json`.

    The card and the counts cover every task that has samples; leaks are counted where samples are kernels.
    All of them are of the corpus, without a user's own programs.
    Folds have a file and counts each (`fold1`, `random_fold1`, ...), and those of a kind one audit (`folds`).

    Raises:
        CostbenchError: for parameters by which the programs cannot be split, or damaged shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    section = profile.section("split", SplitParams)
    data, folder = workspace.stage("generate"), workspace.stage("split")
    before = read_identity(data)
    shards = _shards(data)
    programs = _programs(shards, workspace.programs)
    splits = [split for name in section.names for split in make_splits(section, name, programs, params)]
    for stale in set(folder.glob("*fold[0-9]*.json")) - {_path(folder, split) for split in splits}:
        stale.unlink()
    for split in splits:
        write_split(_path(folder, split), split)
        for program, reason in split.reasons.items():
            _log.info("%s split: %s is dropped, being %s", split.name, program, reason)
    card: Tree = {}
    leakage: dict[str, Tree] = {}
    counts: dict[str, Tree] = {}
    of_user = {program.name for program in programs if is_of_user(program.application)}
    for (task, chip), all_programs_of in shards.items():
        # What describes the corpus does not depend on what a user adds.
        programs_of = {name: paths for name, paths in all_programs_of.items() if name not in of_user}
        if not programs_of:
            continue
        card.setdefault(task, {})[chip] = dataset_card(programs_of)
        for split in splits:
            counted = set_counts(split, programs_of)
            counts.setdefault(task, {}).setdefault(split.name, {})[chip] = counted
            sizes = "/".join(str(counted[part]["programs"]) for part in ("train", "validation", "test"))
            _log.info("%s, %s, %s: %s programs to train, validate, test", split.name, task, chip, sizes)
        for report in _audits(splits, programs_of) if task in AUDITED else ():
            leakage.setdefault(task, {}).setdefault(report.split, {})[chip] = report.to_dict()
            share = 100 * report.test.share_of_kernels
            _log.info(
                "%s, %s, %s: %.1f%% of %d test kernels seen in training",
                report.split, task, chip, share, report.test.kernels,
            )  # fmt: skip
    write_json(folder / "leakage.json", leakage)
    write_json(folder / "counts.json", counts)
    write_json(folder / "card.json", card)
    write_identity(folder, identify(__name__, section, before.data_digest, before))


def _path(folder: Path, split: Split) -> Path:
    return folder / f"{split.name}.json"


def _audits(splits: Sequence[Split], programs: ProgramShards) -> list[LeakageReport]:
    """Returns the audit of each split, in which all folds count as one."""
    reports: dict[str, list[LeakageReport]] = {}
    for split in splits:
        reports.setdefault(reported_split(split.name), []).append(leakage_audit(split, programs))
    return [pool_leakage(name, audits) for name, audits in reports.items()]


def make_splits(
    section: SplitParams, name: str, programs: tuple[ProgramInfo, ...], params: Path
) -> tuple[Split, ...]:
    """Returns the split called `name`, or all folds; programs of the user are added to the first test set.

    Raises:
        ParamsError: naming the parameter file, if these programs cannot be split by the parameters.
    """
    corpus = [program for program in programs if not is_of_user(program.application)]
    of_user = tuple(program.name for program in programs if is_of_user(program.application))
    try:
        first, *others = _splits(section, name, corpus)
    except CostbenchError as error:
        field = f"split.{name}" + (f".{error.field}" if error.field else "")
        raise error.recast(ParamsError, where=params, field=field) from error
    return (replace(first, test=tuple(sorted((*first.test, *of_user)))), *others)


def _splits(section: SplitParams, name: str, corpus: Sequence[ProgramInfo]) -> tuple[Split, ...]:
    if name == "random":
        r = section.random
        return (random_split(corpus, r.seed, r.num_validation, r.num_test, r.test_applications),)
    if name == "manual":
        m = section.manual
        return (
            manual_split(
                corpus, m.test_programs, m.held_out_applications, m.dropped,
                seed=m.seed, num_validation=m.num_validation,
            ),
        )  # fmt: skip
    if section.folds is None:
        raise DataError("missing", where=name, expected="k, seed, num_validation")
    f = section.folds
    return fold_splits(corpus, f.k, f.seed, f.num_validation, name)


def _shards(folder: Path) -> dict[tuple[str, str], ProgramShards]:
    """Returns the shards of each (task, chip)."""
    shards: dict[tuple[str, str], ProgramShards] = {}
    for task in TASKS:
        chips = sorted(path for path in (folder / task).glob("*") if path.is_dir())
        for chip in chips:
            programs = shards_by_program(chip)
            if programs:
                shards[task, chip.name] = programs
    if not shards:
        raise DataError("no shards", where=folder, expected="shards made by the stage `generate`")
    return shards


def _programs(shards: Mapping[tuple[str, str], ProgramShards], folder: Path) -> tuple[ProgramInfo, ...]:
    """Returns the programs that have samples, by name: rows of the manifest, or what records say of them."""
    infos = {
        entry.name: ProgramInfo(entry.name, entry.application, entry.builder)
        for entry in all_programs(folder)
    }
    names = {name: paths for programs in shards.values() for name, paths in programs.items()}
    for name, paths in names.items():
        facts = {} if name in infos else Shard.open(paths[0]).metadata
        if RECORDED in facts:
            infos[name] = ProgramInfo(name, str(facts["application"]), str(facts["builder"]))
        if name not in infos:
            raise DataError(f"no program {name!r}, but shards of it", where=folder, expected="generate again")
    return tuple(infos[name] for name in sorted(names))
