"""Evaluators score the decisions of one kernel, by a cost model or by measuring on a device.

Both return scores (lower is faster) and the seconds charged for them. They have no state and no budget: the
search decides what to spend. The device is a protocol, so this package does not depend on the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.models.cost_model import CostModel

Source = Literal["model", "device"]
Decisions_contra = TypeVar("Decisions_contra", contravariant=True)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of `n` decisions.

    Attributes:
        scores: float64 [n], lower is faster; infinite for a decision that failed.
        seconds: float64 [n], charged for each.

    Raises:
        ValueError: for arrays of different lengths, a score that is NaN or -inf, or a negative or endless
            time.
    """

    scores: F64
    seconds: F64

    def __post_init__(self) -> None:
        # A search stops at once: its budget would be spent before the trace refuses the score.
        if self.scores.shape != self.seconds.shape:
            raise ValueError(f"{self.scores.shape} scores, {self.seconds.shape} seconds")
        if not (self.scores > -np.inf).all():
            raise ValueError("a score is no number")
        if not ((self.seconds >= 0.0) & (self.seconds < np.inf)).all():
            raise ValueError("an evaluation took a negative or endless time")


class Evaluator(Protocol[Decisions_contra]):
    """Scores decisions of one kernel or program; the score of one does not depend on the others."""

    @property
    def source(self) -> Source:
        """Whether scores are predicted or measured."""
        ...

    @property
    def name(self) -> str:
        """Name of the model or device, for the trace."""
        ...

    def evaluate(self, decisions: Decisions_contra) -> Evaluation:
        """Returns scores in the order of the decisions."""
        ...

    def recall(self, decisions: Decisions_contra) -> None:
        """Takes over decisions that an interrupted search has evaluated, in order.

        Needed by evaluators whose charges depend on earlier decisions.
        """
        ...


class Measured(Protocol):
    """What a device returns for `n` decisions: runtimes, failures, and the accelerator time of each."""

    @property
    def runtime_ns(self) -> I64: ...

    @property
    def failed(self) -> Bool: ...

    @property
    def run_seconds(self) -> F64: ...


class MeasuringDevice(Protocol):
    """A machine, real or simulated."""

    def measure(self, kernel: Kernel, decisions: TileSizes, /) -> Measured:
        """Compiles and runs the kernel with every decision."""
        ...


@dataclass(frozen=True)
class ModelEvaluator:
    """Predicts the cost of a kernel's tile sizes; an `Evaluator` of `TileSizes`.

    Attributes:
        kernel: kernel that is priced.
        model: prices it.
        name: name of the model.
        evaluation_s: seconds charged per prediction, a rate measured once: so results do not depend on how
            fast the computer is that runs them.
    """

    kernel: Kernel
    model: CostModel
    name: str
    evaluation_s: float = 0.0

    source: ClassVar[Source] = "model"

    def evaluate(self, decisions: TileSizes) -> Evaluation:
        """Returns predicted costs.

        Raises:
            DataError: if the model does not return one finite cost per decision.
        """
        scores = np.asarray(self.model.predict(self.kernel, decisions), dtype=np.float64)
        if scores.shape != (len(decisions),) or not np.isfinite(scores).all():
            raise DataError(
                f"costs of shape {scores.shape}",
                where=f"model {self.name}",
                expected=f"{len(decisions)} finite numbers",
            )
        return Evaluation(scores, np.full(len(decisions), self.evaluation_s))

    def recall(self, decisions: TileSizes) -> None:
        """Does nothing: every prediction is charged the same."""


@dataclass(frozen=True)
class DeviceEvaluator:
    """Measures a kernel's tile sizes; an `Evaluator` of `TileSizes`.

    Attributes:
        kernel: kernel that is measured.
        device: measures it.
        name: name of the device.
        compile_s: seconds charged per decision before it runs; a compile that fails costs as much.
    """

    kernel: Kernel
    device: MeasuringDevice
    name: str
    compile_s: float = 0.0

    source: ClassVar[Source] = "device"

    def evaluate(self, decisions: TileSizes) -> Evaluation:
        """Returns measured nanoseconds, infinite where the compile failed."""
        measured = self.device.measure(self.kernel, decisions)
        scores = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
        return Evaluation(scores, measured.run_seconds + self.compile_s)

    def recall(self, decisions: TileSizes) -> None:
        """Does nothing: every tile size is compiled and run."""
