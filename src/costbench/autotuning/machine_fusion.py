"""Scores fusion configs by running the whole program on a machine that exists.

There, kernels do not add up by construction, compiling takes the time that it takes, and a config that gives
the kernels of an earlier one is recognised after cutting and not compiled again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from costbench.arrays import I16
from costbench.autotuning.evaluators import Evaluation, Source
from costbench.compiler.fusion.space import FusionCuts, FusionSpace

_REPEAT_S = 1e-3


class ProgramRun(Protocol):
    """What a machine says of a program under one config."""

    @property
    def runtime_ns(self) -> float:
        """Time of the fastest run; infinite if it was refused, took too long or had other results."""
        ...

    @property
    def seconds(self) -> float:
        """Time that the machine spent on it, compiling included."""
        ...


class ProgramMachine(Protocol):
    """Runs one program."""

    @property
    def name(self) -> str:
        """Name of the machine, for the trace."""
        ...

    def run(self, config: I16, /) -> ProgramRun:
        """Compiles the program under a config [m] and runs it."""
        ...


@dataclass(frozen=True, eq=False)
class MachineFusionEvaluator:
    """Measures a program under fusion configs; an `Evaluator` of `ChoiceArray`.

    Attributes:
        space: fusion configs of the program.
        machine: runs it.
    """

    space: FusionSpace
    machine: ProgramMachine
    _cuts: FusionCuts = field(init=False, repr=False)
    _known_ns: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)

    source: ClassVar[Source] = "device"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cuts", FusionCuts(self.space))

    @property
    def name(self) -> str:
        """Returns the name of the machine."""
        return self.machine.name

    def evaluate(self, decisions: I16) -> Evaluation:
        """Returns nanoseconds of a run of the program, and the seconds that finding them took."""
        runs = np.array([self._run(config) for config in decisions]).reshape(-1, 2)
        return Evaluation(runs[:, 0], runs[:, 1])

    def recall(self, decisions: I16) -> None:
        """Does nothing: what an interrupted search measured is measured again where its kernels come back."""

    def _run(self, config: I16) -> tuple[float, float]:
        start = time.process_time()
        key = self._cuts.cut(config).key
        if key in self._known_ns:
            # What takes no time by the clock could be asked for forever.
            return self._known_ns[key], max(time.process_time() - start, _REPEAT_S)
        run = self.machine.run(config)
        self._known_ns[key] = run.runtime_ns
        return run.runtime_ns, run.seconds
