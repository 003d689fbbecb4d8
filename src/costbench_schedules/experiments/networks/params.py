"""Section `schedules.networks`: which models are tested on recorded programs of networks."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.errors import ChoiceError, choose
from costbench_schedules.experiments.networks.rivals import FITTED, UNFITTED
from costbench_schedules.operators.networks import networks

ALL = "all"
"""Variant of a model that is fitted to all target records there are."""


@dataclass(frozen=True)
class NetworkTesting:
    """Section `schedules.networks`.

    Attributes:
        networks: tested on, each by models that have seen none of its operators.
        models: names of `rivals.FITTED`; all those of `UNFITTED` are tested beside them.
        records: numbers of target records that learned models are fitted to; they are also fitted to all.
        seeds: of draws and fits.
        steps: of the training of networks.
        folder: of `costbench estimate-networks`, relative to the repository's root.
    """

    networks: tuple[str, ...] = ("ResNet-50", "MobileNet-V2", "ResNeXt-50", "BERT-tiny", "BERT-base")
    models: tuple[str, ...] = tuple(FITTED)
    records: tuple[int, ...] = (0, 100, 1000)
    seeds: tuple[int, ...] = (0,)
    steps: int = 600
    folder: str = "data/networks"

    def __post_init__(self) -> None:
        try:
            for name in self.networks:
                choose(networks(), name, "network")
            for name in self.models:
                choose(FITTED, name, "model")
        except ChoiceError as error:
            raise ValueError(str(error)) from error
        for name in ("networks", "models", "records", "seeds"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be different ones")
        if not self.networks or not self.seeds or self.steps < 1 or min(self.records, default=0) < 0:
            raise ValueError("networks, seeds, steps: at least one; records: not negative")


def learned(name: str) -> bool:
    """Returns whether a model is fitted to records."""
    return name in FITTED and name not in UNFITTED
