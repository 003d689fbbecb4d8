"""An entry of the suite that knows nothing: runtimes drawn from those of training.

`costbench suite score --model examples.suite_random:Random --task tile --name random`.
"""

import numpy as np

from costbench_suite.task_data import TaskData


class Random:
    """Draws a measured runtime of a training program for each decision."""

    def fit(self, data: TaskData, train: list[str], validation: list[str]) -> None:
        """Collects the runtimes of a fold's training programs."""
        tables = [data.table("decisions", name, ("runtime_ns",)) for name in train]
        self.runtimes = np.concatenate([table["runtime_ns"].to_numpy() for table in tables])

    def predict(self, data: TaskData, program: str) -> np.ndarray:
        """Returns a cost for each decision of a program."""
        draws = np.random.default_rng(list(program.encode()))
        return draws.choice(self.runtimes, len(data.table("decisions", program, ("decision",))))
