"""Section `schedules.estimated`: searches of recorded tables with estimates of the analytical model."""

from __future__ import annotations

from dataclasses import dataclass, field

from costbench.errors import ChoiceError, choose
from costbench_schedules.experiments.estimated.arms import ARMS
from costbench_schedules.search.guided import GuidedSpec


@dataclass(frozen=True)
class EstimatedTuning:
    """Section `schedules.estimated`.

    Attributes:
        arms: names of `arms.ARMS`.
        trials: of a search.
        repeats: of a search; repeat r of every arm that begins at random begins alike.
        draft: programs that the analytical model proposes for a batch, of arms with a draft.
        guided: settings of the arms with trees; chains are not used, every program is asked about.
        fewest: programs with estimates that a table needs to be searched.
        tables: folder of the recorded tables, relative to the repository's root.
        estimates: folder of `costbench estimate-networks` about their programs.
        seed: of all searches.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    trials: int = 128
    repeats: int = 10
    draft: int = 64
    guided: GuidedSpec = field(default_factory=lambda: GuidedSpec(batch=16))
    fewest: int = 200
    tables: str = "data/schedules"
    estimates: str = "data/schedules/estimates"
    seed: int = 0

    def __post_init__(self) -> None:
        try:
            for name in self.arms:
                choose(ARMS, name, "arm")
        except ChoiceError as error:
            raise ValueError(str(error)) from error
        if not self.arms or len(set(self.arms)) != len(self.arms):
            raise ValueError(f"arms are {list(self.arms)}, must be one or more different ones")
        if min(self.trials, self.repeats, self.draft) < 1:
            raise ValueError("trials, repeats, draft: at least 1")
        if self.fewest < self.trials:
            raise ValueError(f"fewest is {self.fewest}, expected at least the {self.trials} trials")
