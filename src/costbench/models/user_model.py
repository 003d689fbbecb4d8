"""A cost model of a user's own, named by dotted path: built, asked and checked."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import F64
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError, UnsupportedKernelError
from costbench.execution.dotted import errors_of, load_dotted
from costbench.target import Architecture
from costbench.tasks import KERNEL_TASKS

_DEFAULT_TASKS = ("tile",)
_SHOWN = 3


@dataclass(frozen=True, eq=False)
class UserModel:
    """A `CostModel` that asks a user's object and refuses answers that are no costs.

    Attributes:
        name: dotted path, `module:attribute`.
        model: has the method `predict(kernel, decisions)`.
        tasks: what the model is for: `tile` unless its attribute `tasks` says otherwise. Costs for `fusion`
            are nanoseconds, since they are added up over kernels.
    """

    name: str
    model: Any
    tasks: tuple[str, ...]

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the cost of each decision, float64 [len(decisions)].

        Raises:
            UnsupportedKernelError: if the model raises it.
            DataError: for any other exception, naming the line of the user's file, and for costs that are not
                as many finite numbers as decisions.
        """
        try:
            with errors_of(self.name):
                answer = self.model.predict(kernel, decisions)
        except DataError as error:
            if isinstance(error.__cause__, UnsupportedKernelError):
                raise error.__cause__ from None
            raise
        if answer is None:
            raise self._refused("returned nothing", kernel, decisions)
        try:
            costs: F64 = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise self._refused(f"returned a {type(answer).__name__}", kernel, decisions) from error
        if costs.shape != (len(decisions),):
            raise self._refused(f"returned an array of shape {costs.shape}", kernel, decisions)
        if not np.isfinite(costs).all():
            wrong = costs[~np.isfinite(costs)][:_SHOWN].tolist()
            raise self._refused(f"returned {', '.join(map(str, wrong))}", kernel, decisions)
        return costs

    def predict_ns(self, kernel: Kernel, tile: TileSizes) -> float:
        """Returns the nanoseconds of a kernel at its one tile size.

        Raises:
            UnsupportedKernelError: as `predict` does.
            DataError: as `predict` does, and for a number that is not above zero.
        """
        runtime_ns = float(self.predict(kernel, tile)[0])
        if runtime_ns <= 0.0:
            output = kernel.instruction(kernel.outputs[0]).name
            raise DataError(
                f"returned {runtime_ns:g}",
                where=self.name,
                field=f"predict of kernel {output}",
                expected="nanoseconds, above 0, from a model of the task fusion",
            )
        return runtime_ns

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Does the same for a kernel that is already lowered."""
        return self.predict(nest.kernel, decisions)

    def for_task(self, task: str) -> UserModel:
        """Returns the model itself.

        Raises:
            DataError: if it is for other tasks.
        """
        if task not in self.tasks:
            expected = f"a model for {task}: its class says tasks = (..., {task!r})"
            raise DataError(f"is a model for {', '.join(self.tasks)}", where=self.name, expected=expected)
        return self

    def _refused(self, problem: str, kernel: Kernel, decisions: TileSizes) -> DataError:
        view = f"predict of kernel {kernel.instruction(kernel.outputs[0]).name}"
        expected = f"{len(decisions)} finite numbers, one per decision"
        return DataError(problem, where=self.name, field=view, expected=expected)


def load_user_model(name: str, architecture: Architecture) -> UserModel:
    """Returns the model of a dotted path: an object with `predict`, or a class or function that makes one.

    A class or function that has a parameter `architecture` gets the figures of the chip.

    Raises:
        DataError: if there is no such thing, it cannot be built or has no method `predict`, with the line of
            the user's file.
    """
    model: Any = load_dotted(name)
    if inspect.isclass(model) or (callable(model) and not hasattr(model, "predict")):
        with errors_of(name):
            takes = "architecture" in inspect.signature(model).parameters
            model = model(architecture=architecture) if takes else model()
    if not callable(getattr(model, "predict", None)):
        raise DataError("has no method predict", where=name, expected="predict(kernel, decisions) -> costs")
    tasks = getattr(model, "tasks", _DEFAULT_TASKS)
    if isinstance(tasks, str) or not set(tasks) <= set(KERNEL_TASKS) or not tasks:
        expected = f"a tuple of {' or '.join(map(repr, KERNEL_TASKS))}"
        raise DataError(f"{tasks!r}", where=name, field="tasks", expected=expected)
    return UserModel(name, model, tuple(tasks))
