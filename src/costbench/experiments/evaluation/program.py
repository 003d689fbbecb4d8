"""The unit of evaluation: one test program on one chip, priced by all models of an experiment."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from costbench.execution.dotted import is_dotted
from costbench.metrics.overhead import Overhead
from costbench.models.spec import Accelerator

UNSEEN = "unseen"
"""Name of the group of kernels that do not occur in training programs."""
NEW_STRUCTURE = "new_structure"
"""Name of the group of kernels whose operator graph, extents aside, occurs in no training program."""
ModelName = Literal[
    "learned",
    "analytical",
    "analytical_unscaled",
    "analytical_constant",
    "analytical_launch",
    "analytical_linear",
    "iterations",
    "default_first",
    "random",
    "linear",
    "trees",
    "trees_analytical",
    "measured_again",
    "regular_machine",
]
ModelKey = tuple[str, str, int]
"""Model, variant, seed."""


@dataclass(frozen=True)
class EvaluateParams:
    """Section `evaluate`: the models and metrics of the comparison on test programs.

    Attributes:
        models: cost models to compare; `learned` stands for every trained cell, `mymodel:MyModel` for one of
            the user's own. A model is evaluated on the tasks that it exists for.
        top_k: values of k for slowdown@k and the top-k score.
        random_seeds: seeds of the random rankings that are averaged over.
    """

    models: tuple[str, ...]
    top_k: tuple[int, ...]
    random_seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("models", "top_k", "random_seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        for model in self.models:
            if model not in get_args(ModelName) and not is_dotted(model):
                names = get_args(ModelName)
                near = "".join(
                    f", did you mean {one!r}?" for one in difflib.get_close_matches(model, names, n=1)
                )
                expected = f"one of {', '.join(names)}, or your own as module:Class"
                raise ValueError(f"no model {model!r}{near}, must be {expected}")
        if min(self.top_k) < 1:
            raise ValueError(f"top_k are {list(self.top_k)}, must be at least 1")


@dataclass(frozen=True)
class Checkpoint:
    """A trained cell: its folder, the model and variant of its result rows, and where it runs."""

    model: str
    variant: str
    seed: int
    folder: Path
    accelerator: Accelerator = "cpu"


@dataclass(frozen=True)
class ProgramTask:
    """One test program on one chip, and the models to evaluate.

    Attributes:
        data: folder of the data set.
        features: folder of the feature shards.
        chip: by name.
        program: by name.
        checkpoints: of the trained cells.
        models: names of the models that are not trained.
        params: of the stage.
        seen: fingerprints of test kernels that also occur in training programs.
        known_structures: fingerprints of test kernels whose structure does.
        fitted: folder of the baselines that were fitted to the split's training programs; None without any.
        split: as result rows list it.
        imported: whether its samples are imported ones, so that there is no compiled program in `data`.
        chip_file: that describes the chip; empty for one that ships with the package.
    """

    data: Path
    features: Path
    chip: str
    program: str
    checkpoints: tuple[Checkpoint, ...]
    models: tuple[str, ...]
    params: EvaluateParams
    seen: frozenset[str]
    known_structures: frozenset[str] = frozenset()
    fitted: Path | None = None
    split: str = ""
    imported: bool = False
    chip_file: str = ""

    def groups(self, fingerprint: str) -> tuple[str, ...]:
        """Return the groups that a kernel is in by what training has not seen of it."""
        unseen = {UNSEEN: self.seen, NEW_STRUCTURE: self.known_structures}
        return tuple(group for group, known in unseen.items() if fingerprint not in known)


@dataclass(frozen=True)
class Scatter:
    """Predicted and measured runtimes of some kernels, for a figure."""

    model: str
    predicted_ns: tuple[float, ...]
    measured_ns: tuple[float, ...]


@dataclass(frozen=True)
class ProgramResult:
    """Metrics of a program.

    Attributes:
        application: application family of the program.
        metrics: group of kernels -> model -> metric -> value.
        scatter: points for a figure, where absolute runtimes are predicted.
        computed_by: which network a trained model ran with, `compiled` or `plain`.
        overheads: what evaluating a decision takes, where that is measured: wall times.
    """

    application: str
    metrics: dict[str, dict[ModelKey, dict[str, float]]]
    scatter: tuple[Scatter, ...] = field(default=())
    computed_by: dict[ModelKey, str] = field(default_factory=dict)
    overheads: tuple[Overhead, ...] = ()
