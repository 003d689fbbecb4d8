"""The strategies of Kernel Tuner (van Werkhoven, Future Generation Computer Systems 90, 2019), as they are.

A strategy runs on Kernel Tuner's own search space and cost function; only its runner is ours, which answers
from a table as the package's simulation mode does: a configuration is charged when it is measured first.
Random numbers of the package are global; a search sets them from its own and puts them back.

Each strategy runs with the defaults of the installed version, and where its makers published
hyper-parameters that they found by tuning the tuner (Willemsen et al., "Tuning the Tuner: Introducing
Hyperparameter Optimization for Auto-Tuning", 2025, in the experiments of AutoTuningAssociation/
autotuning_methodology, compare_hypertuners_paper.json), also with these.
"""

from __future__ import annotations

import random  # noqa: TID251 (the numbers that Kernel Tuner draws from)
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from types import MappingProxyType
from typing import Any

import numpy as np

from costbench.errors import ChoiceError
from costbench.installation import install_line
from costbench_schedules.search.replay import Replay
from costbench_schedules.spaces.parameter_space import ParameterSpace

EXTRA = "kernel-tuner"
_NS_PER_MS = 1e6

STRATEGIES = (
    "adaptive_tabu_greywolf",
    "basinhopping",
    "bayes_opt",
    "diff_evo",
    "dual_annealing",
    "firefly_algorithm",
    "genetic_algorithm",
    "greedy_ils",
    "greedy_mls",
    "hybrid_vndx",
    "mls",
    "ordered_greedy_mls",
    "pso",
    "simulated_annealing",
)
"""Its strategies of one objective. Those left out draw at random, need a package of their own, or are local
minimisers that end when they have converged."""

RECOMMENDED: Mapping[str, Mapping[str, object]] = {
    "diff_evo": {"popsize": 20, "maxiter": 100, "method": "best1bin"},
    "genetic_algorithm": {"popsize": 30, "maxiter": 50, "method": "single_point", "mutation_chance": 20},
    "pso": {"popsize": 30, "maxiter": 100, "c1": 3.0, "c2": 0.5},
}
"""Hyper-parameters by strategy that the makers recommend; the defaults of 1.5.0 follow from later tuning.

Those of dual annealing (COBYLA) are its defaults."""


@dataclass(frozen=True)
class KernelTunerSearch:
    """A `TableStrategy`.

    Attributes:
        strategy: name of the strategy in Kernel Tuner.
        options: hyper-parameters that differ from the defaults.
    """

    strategy: str
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __call__(self, replay: Replay, rng: np.random.Generator, /) -> None:
        """Measures until no trial is left or the strategy ends.

        Raises:
            ChoiceError: if Kernel Tuner is not installed.
        """
        try:
            from kernel_tuner.interface import Options, strategy_map
            from kernel_tuner.util import TuningBudget
        except ImportError as error:
            raise ChoiceError("Kernel Tuner is not installed", expected=f"`{install_line(EXTRA)}`") from error
        values = _values(replay.space)
        settings = Options(
            tune_params=values,
            strategy_options=Options({**self.options, "max_fevals": replay.trials}),
            max_fevals=replay.trials,
            budget=TuningBudget(None, replay.trials),
            objective=["time"],
            objective_higher_is_better=[False],
            restrictions=[],
            metrics=None,
            verbose=False,
        )
        seed = int(rng.integers(2**31))
        with _global_random(seed), redirect_stdout(StringIO()), warnings.catch_warnings():
            # Costs of failures, the largest float, overflow in it.
            warnings.simplefilter("ignore")
            strategy_map[self.strategy].tune(_search_space(replay.space, values), _runner(replay), settings)


@contextmanager
def _global_random(seed: int) -> Iterator[None]:
    """Seeds the global random numbers and generators made without a seed; puts back what they were."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    make, sequence = np.random.default_rng, np.random.SeedSequence(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    # Latin hypercubes of diff_evo and bayes_opt.
    np.random.default_rng = lambda seed=None: make(sequence.spawn(1)[0] if seed is None else seed)
    try:
        yield
    finally:
        np.random.default_rng = make
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _values(space: ParameterSpace) -> dict[str, list[Any]]:
    """Returns the values of each parameter; their indices if they are no numbers."""
    return {
        name: list(values)
        if all(isinstance(value, int | float) for value in values)
        else [*range(len(values))]
        for name, values in space.parameters.items()
    }


def _search_space(space: ParameterSpace, values: Mapping[str, list[Any]]) -> Any:
    """Returns the listed configurations as Kernel Tuner's own search space.

    A new one each time: the neighbours that it remembers come in an order that depends on earlier searches.
    """
    from kernel_tuner.searchspace import Searchspace

    columns = [
        np.array(of_one, dtype=object)[codes]
        for of_one, codes in zip(values.values(), space.listed.T, strict=True)
    ]
    listed = [dict(zip(values, row, strict=True)) for row in zip(*columns, strict=True)]
    cache = {str(number): configuration for number, configuration in enumerate(listed)}
    return Searchspace(None, None, None, from_cache={"tune_params": dict(values), "cache": cache})


def _runner(replay: Replay) -> Any:
    """Returns a runner that answers from a table, as `kernel_tuner.runners.simulation` does from a cache."""
    from kernel_tuner.runners.runner import Runner
    from kernel_tuner.runners.simulation import _SimulationDevice
    from kernel_tuner.util import RuntimeFailedConfig

    values = _values(replay.space)
    numbers = [{value: index for index, value in enumerate(of_one)} for of_one in values.values()]

    class TableRunner(Runner):  # type: ignore[misc]
        """Answers from a table."""

        def __init__(self) -> None:
            super().__init__()
            self.dev = _SimulationDevice(1_000_000_000, {"device_name": "table"}, True)
            self.units: dict[str, str] = {}

        def get_device_info(self) -> Any:
            return self.dev

        def get_environment(self, tuning_options: Any) -> Any:
            return self.dev.env

        def run(self, parameter_space: Any, tuning_options: Any) -> list[Any]:
            results: list[Any] = []
            for element in parameter_space:
                if tuning_options.budget.is_done():
                    results.append(None)
                    continue
                row = [codes[value] for codes, value in zip(numbers, element, strict=True)]
                left = replay.left
                [runtime_ns] = replay.measure_rows(np.array([row])).tolist()
                tuning_options.budget.add_evaluations(left - replay.left)
                result = dict(zip(values, element, strict=True))
                if np.isfinite(runtime_ns):
                    result["time"] = runtime_ns / _NS_PER_MS
                else:
                    result["time"] = result["__error__"] = RuntimeFailedConfig()
                results.append(result)
            return results

    return TableRunner()


KERNEL_TUNER: Mapping[str, Callable[[], KernelTunerSearch]] = {
    **{f"kernel-tuner-{name}": partial(KernelTunerSearch, name) for name in STRATEGIES},
    **{
        f"kernel-tuner-{name}-recommended": partial(KernelTunerSearch, name, options)
        for name, options in RECOMMENDED.items()
    },
}
"""Builders of Kernel Tuner's strategies: with the defaults of the installed version, and as recommended."""
