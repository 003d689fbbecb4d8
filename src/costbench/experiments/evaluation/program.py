"""The unit of evaluation: one test program on one chip, priced by all models of an experiment."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from costbench.baselines import BASELINES, GROUP, WITHOUT_CEILINGS, expand
from costbench.compiler.kernel import Kernel
from costbench.execution.dotted import is_dotted
from costbench.experiments.grid.cells import LEARNED
from costbench.hlo.opcode import Opcode
from costbench.metrics.overhead import Overhead
from costbench.models.spec import Accelerator

ALL_KERNELS = "all"
BEST = "best"
"""Model name of the results that depend on no model."""
UNSEEN = "unseen"
"""Name of the group of kernels that do not occur in training programs."""
NEW_STRUCTURE = "new_structure"
"""Name of the group of kernels whose operator graph, extents aside, occurs in no training program."""
ModelKey = tuple[str, str, int]
"""Model, variant, seed; of a search the arm, its budget, and the number of the repeat or network."""
ByModel = dict[ModelKey, dict[str, float]]
"""Model -> metric -> value."""
_CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT, Opcode.RAGGED_DOT})
_REDUCTIONS = frozenset({Opcode.REDUCE, Opcode.REDUCE_WINDOW, Opcode.SELECT_AND_SCATTER, Opcode.SCAN})
_MOVES = frozenset(
    {
        Opcode.BITCAST,
        Opcode.BITCAST_CONVERT,
        Opcode.BROADCAST,
        Opcode.CONCATENATE,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.DYNAMIC_SLICE,
        Opcode.DYNAMIC_UPDATE_SLICE,
        Opcode.GATHER,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.IOTA,
        Opcode.PAD,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SCATTER,
        Opcode.SLICE,
        Opcode.SORT,
        Opcode.TRANSPOSE,
        Opcode.TUPLE,
    }
)


@dataclass(frozen=True)
class EvaluateParams:
    """Section `evaluate`: the models and metrics of the comparison on test programs.

    Attributes:
        models: cost models to compare; `learned` stands for every trained cell, `baselines` for all models
            that are none, `baselines_without_ceilings` for those of them that do not know the machine
            (ceilings price every kernel again), `mymodel:MyModel` for one of the user's own. A model is
            evaluated on the tasks that it exists for, so one of `baselines` may be named alone.
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
            names = (LEARNED, GROUP, WITHOUT_CEILINGS, *BASELINES)
            if model not in names and not is_dotted(model):
                close = difflib.get_close_matches(model, names, n=1)
                near = f", did you mean {close[0]!r}?" if close else ""
                expected = f"one of {', '.join(names)}, or your own as module:Class"
                raise ValueError(f"no model {model!r}{near}, must be {expected}")
        if min(self.top_k) < 1:
            raise ValueError(f"top_k are {list(self.top_k)}, must be at least 1")

    @property
    def untrained(self) -> tuple[str, ...]:
        """Returns the names of the models that are no trained cells, all rows in place of `baselines`."""
        return tuple(dict.fromkeys(name for name in expand(self.models) if name != LEARNED))


@dataclass(frozen=True)
class Checkpoint:
    """A trained cell: its folder, the model and variant of its result rows, and where it runs."""

    model: str
    variant: str
    seed: int
    folder: Path
    accelerator: Accelerator = "cpu"

    @property
    def key(self) -> ModelKey:
        """Returns the model, variant and seed of its result rows."""
        return self.model, self.variant, self.seed


@dataclass(frozen=True)
class ProgramTask:
    """One test program on one chip, and the models to evaluate.

    Attributes:
        data: folder of the data set.
        features: folder of the feature shards.
        chip: name of the chip.
        program: name of the program.
        checkpoints: trained cells.
        models: names of the models that are not trained.
        params: parameters of the stage.
        seen: fingerprints of test kernels that also occur in training programs.
        known_structures: fingerprints of test kernels whose structure does.
        fitted: folder of the baselines that were fitted to the split's training programs; None without any.
        split: name of the split in result rows.
        imported: whether its samples are imported ones, so that there is no compiled program in `data`.
        chip_file: file that describes the chip; empty for one that ships with the package.
        fitted_to: folders of the baselines that were fitted to estimates of further qualities, by quality.
        fitted_with: folders of the boosted trees of several budgets, by name of the budget and seed.
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
    fitted_to: Mapping[str, Path] = field(default_factory=dict)
    fitted_with: Mapping[tuple[str, int], Path] = field(default_factory=dict)

    def groups(self, fingerprint: str) -> tuple[str, ...]:
        """Returns the groups that a kernel is in by what training has not seen of it."""
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
        computed_by: implementation of the network that a trained model ran with, `compiled` or `plain`.
        overheads: what evaluating a decision takes, where that is measured: wall times.
    """

    application: str
    metrics: dict[str, ByModel]
    scatter: tuple[Scatter, ...] = field(default=())
    computed_by: dict[ModelKey, str] = field(default_factory=dict)
    overheads: tuple[Overhead, ...] = ()


def kind_of(opcodes: Iterable[int]) -> str:
    """Returns the kind of a kernel, from the opcodes of its own instructions.

    The kind is `contraction` if there is a dot or convolution among them, else `reduction` if values are
    reduced, else `data movement` if no values are computed, else `elementwise`.
    """
    kinds = set(opcodes)
    if kinds & _CONTRACTIONS:
        return "contraction"
    if kinds & _REDUCTIONS:
        return "reduction"
    return "data movement" if kinds <= _MOVES else "elementwise"


def kernel_kind(kernel: Kernel) -> str:
    """Returns the kind of a kernel; see `kind_of`."""
    return kind_of(kernel.instruction(position).opcode for position in kernel.instructions)
