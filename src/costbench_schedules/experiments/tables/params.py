"""Section `schedules.tables`: which searches for schedules are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from costbench.errors import ChoiceError, choose
from costbench_schedules.experiments.tables.arms import ARMS
from costbench_schedules.experiments.tables.global_models import FITTED
from costbench_schedules.search.guided import GuidedSpec
from costbench_schedules.section_file import DEFAULT_TABLES

NATIVE = "native"
"""Target of the processor itself."""


@dataclass(frozen=True)
class SearchGroup:
    """Searches of every arm for every workload on every target.

    Attributes:
        workloads: by name; those without a complete table are left out.
        arms: names of `ARMS`.
        targets: that tables were recorded for.
    """

    workloads: tuple[str, ...]
    arms: tuple[str, ...]
    targets: tuple[str, ...] = (NATIVE,)

    def __post_init__(self) -> None:
        for name in ("workloads", "arms", "targets"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        for arm in self.arms:
            try:
                choose(ARMS, arm, "arm")
            except ChoiceError as error:
                raise ValueError(str(error)) from error


@dataclass(frozen=True)
class TransferParams:
    """What earlier models are fitted to (autotvm2018, section 6.2).

    Attributes:
        sources: workloads; that which is tuned is left out of them on its own target.
        samples: drawn at random from all of their configurations.
        target: where the sources of the arm `transfer-target` were measured.
    """

    sources: tuple[str, ...] = ("C1", "C2", "C3", "C4", "C5", "C6")
    samples: int = 4000
    target: str = NATIVE

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}, expected at least 2")


@dataclass(frozen=True)
class TimedModels:
    """Models whose wall times are taken.

    Attributes:
        workloads: whose tables on the target `native`; those without one are left out.
        samples: schedules that a model is fitted to; it predicts all.
    """

    workloads: tuple[str, ...] = ()
    samples: int = 128

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}, expected at least 2")


@dataclass(frozen=True)
class ModelTests:
    """Models that are fitted once and tested on other workloads; see `global_models`.

    Attributes:
        models: names of `global_models.FITTED`; baselines are tested beside them.
        tested: workloads of the fixed split, whose models are fitted to `transfer.sources`.
        folded: workloads that are divided into folds.
        folds: number of folds; 0 for none.
        seeds: of a model, one fit each.
        targets: that tables were recorded for.
    """

    models: tuple[str, ...] = ()
    tested: tuple[str, ...] = ("C7", "C8", "C9", "matmul-1024")
    folded: tuple[str, ...] = ()
    folds: int = 0
    seeds: tuple[int, ...] = (0,)
    targets: tuple[str, ...] = (NATIVE,)

    def __post_init__(self) -> None:
        for name in self.models:
            try:
                choose(FITTED, name, "model")
            except ChoiceError as error:
                raise ValueError(str(error)) from error
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds is {self.folds}, expected 0 or at least 2")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds are {list(self.seeds)}, must be one or more different ones")


@dataclass(frozen=True)
class ScheduleTuning:
    """Section `schedules.tables`.

    Attributes:
        searches: groups of searches, by a name of the user's.
        trials: of a search.
        repeats: of a search. Repeat r of every arm begins with the same random draws.
        guided: settings of the arms that a model guides.
        transfer: what earlier models are fitted to.
        models: models that are tested without a search.
        times: wall times of models.
        tables: folder of the recorded tables, relative to the repository's root.
        seed: of all searches.
    """

    searches: Mapping[str, SearchGroup]
    trials: int = 400
    repeats: int = 10
    guided: GuidedSpec = field(default_factory=GuidedSpec)
    transfer: TransferParams = field(default_factory=TransferParams)
    models: ModelTests = field(default_factory=ModelTests)
    times: TimedModels = field(default_factory=TimedModels)
    tables: str = DEFAULT_TABLES
    seed: int = 0

    def __post_init__(self) -> None:
        if self.trials < 1 or self.repeats < 1:
            raise ValueError("trials, repeats: at least 1")
