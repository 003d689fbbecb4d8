"""Time to quality: core-seconds of training, from nothing to a stated validation value, of several recipes.

    python -m benchmarks.time_to_quality [--params FILE] [--recipe FILE] [--seeds 0 1 2] [--steps N] [--json]

Trains the hybrid of each task on the random split of a profile whose stages `features` and `split` have run.
No test program is read. Trainings are `recipe`, by section `train` of that profile or of another parameter
file, and `adam`, by the optimiser and the batches that the section had first. Learning rates fall to the
end of `STEPS` steps. The two take turns, so a busy machine slows both; medians over the seeds count.

Two values are asked for. `stated` are the bounds in `TARGETS`. `matched` is the best validation value that
both reach with the same seed: tau for tile sizes, MAPE for fusion. Either counts after the first
epoch that has it; `to_adam` is the ratio to what `adam` took, and `best` the best value of a training.

Core-seconds are CPU seconds of the process, those of reading the data and of validating among them. Code that
is compiled when first called is compiled before. `null` is a value that was not reached.

`naive_pyg` is Adam with naive PyG batching (`naive_pyg.NaiveNet`). Its costs and gradients are those of
`adam` but for rounding, so its steps are: some are timed, and taken as often as `adam` took them.

With `--short`, networks of width 8 learn from made-up kernels to be better than chance: a test of the code.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from benchmarks.naive_pyg import NaiveCollator, NaiveNet
from benchmarks.synthetic_kernels import kernels
from benchmarks.training_overhead import ColumnSource, columns_of
from costbench.datasets.splits import read_training_programs
from costbench.execution.workers import NO_FLAGS
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.train import with_samples
from costbench.experiments.workspace import load_workspace
from costbench.features.feature_shards import paths_of_programs
from costbench.models.execution import apply_execution
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.training.batches import BatchSampler, SampleSource
from costbench.training.fit import fit
from costbench.training.kernel_source import KernelSource
from costbench.training.losses import find_loss
from costbench.training.spec import OptimizerSpec, TrainParams, TrainSpec

TASKS = ("tile", "fusion")
TARGETS: Mapping[str, Mapping[str, float]] = {
    "tile": {"validation/tau": 0.87, "validation/slowdown": 0.018},
    "fusion": {"validation/mape": 3.5},
}
"""Validation values that are asked for, all of a task in one epoch; the first says which is matched."""
LARGER_IS_BETTER = ("validation/tau",)
BASELINE = "adam"
ADAM = {
    "tile": OptimizerSpec(learning_rate=1e-3, averaging=0.99),
    "fusion": OptimizerSpec(learning_rate=3e-3, averaging=0.99, weight_decay=0.1),
}
"""Optimiser that section `train` had first, by task."""
BATCHES = {"tile": (8, 32), "fusion": (256, 1)}
"""Kernels a batch and configs a kernel that it had first."""
STEPS: Mapping[str, int] = {"adam": 25_600, "recipe": 6_400}
EPOCHS = 16
_NAIVE_STEPS = 12


@dataclass
class Clock:
    """Notes what a training has reached after each epoch, and when.

    Attributes:
        started: CPU seconds of the process at the start.
        points: CPU seconds since then, training steps and validation metrics after each epoch.
    """

    started: float
    points: list[tuple[float, int, Mapping[str, float]]] = field(default_factory=list)

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Notes the metrics of an epoch."""
        self.points.append((time.process_time() - self.started, step, metrics))

    def until(self, bounds: Mapping[str, float]) -> tuple[float, int]:
        """Returns CPU seconds and steps until all bounds are met in one epoch; infinity and 0 if never."""
        signs = {name: 1.0 if name in LARGER_IS_BETTER else -1.0 for name in bounds}
        for core_s, steps, metrics in self.points:
            if all(signs[name] * metrics[name] >= signs[name] * bound for name, bound in bounds.items()):
                return core_s, steps
        return math.inf, 0

    def best(self, metric: str) -> float:
        """Returns the best value of a metric after any epoch."""
        values = [metrics[metric] for _, _, metrics in self.points]
        return max(values) if metric in LARGER_IS_BETTER else min(values)


@dataclass(frozen=True)
class Sources:
    """The kernels of a task.

    Attributes:
        train: shards of training programs, or kernels in memory.
        validation: those of validation programs.
    """

    train: Sequence[Path] | SampleSource
    validation: Sequence[Path] | SampleSource

    def open(self) -> tuple[SampleSource, SampleSource]:
        """Returns the training and the validation kernels; shards are read again."""
        train, validation = (
            KernelSource(source) if isinstance(source, Sequence) else source
            for source in (self.train, self.validation)
        )
        return train, validation


def train(spec: TrainSpec, sources: Sources) -> Clock:
    """Trains from nothing to the end."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(time.process_time())
        fit(spec, *sources.open(), Path(folder), logger=clock)
    return clock


def naive_step_s(spec: TrainSpec, sources: Sources) -> float:
    """Returns CPU seconds of a step with naive batching: the median, data in memory and prepared."""
    train, _ = sources.open()
    scaling = FeatureScaling.of_extremes(train.extremes(), spec.transform)
    net = LearnedCostNet(spec.net, scaling.sizes)
    naive, collate = NaiveNet(net), NaiveCollator(scaling, spec.net.max_neighbors)
    optimizer = torch.optim.AdamW(net.parameters(), lr=spec.optimizer.learning_rate, fused=True)
    loss = find_loss(spec.loss)
    plans = iter(BatchSampler(train, spec.batch, spec.seed, min_configs=loss.min_configs))
    coefficient, seconds = net.log_coefficient, []
    with apply_execution(replace(spec.execution, onednn_matmul=False, keep_memory=False)):
        for _ in range(min(_NAIVE_STEPS, spec.batch.per_epoch)):
            plan = next(plans)
            samples = [train[k].select(rows) for k, rows in zip(plan.kernels, plan.configs, strict=True)]
            # Runtimes, estimates and the mask of padding as any training has them.
            known = Collator(scaling, spec.net.max_neighbors).collate(train.pack(plan.kernels, plan.configs))
            collate(samples)
            started = time.process_time()
            costs = torch.zeros(known.mask.shape).masked_scatter(known.mask, naive(collate(samples)))
            if coefficient is not None and known.log_analytical is not None:
                costs = costs + coefficient.exp() * known.log_analytical
            optimizer.zero_grad(set_to_none=True)
            loss.function(costs.float(), known.runtime_ns, known.mask).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def recipes(spec: TrainSpec, task: str, steps: Mapping[str, int]) -> dict[str, TrainSpec]:
    """Returns the settings of both trainings, by name; those of `recipe` are the given ones."""
    kernels, configs = BATCHES[task]
    first = replace(spec.batch, kernels=kernels, configs=configs)
    settings = {"adam": replace(spec, optimizer=ADAM[task], batch=first), "recipe": spec}
    return {
        name: replace(
            one,
            epochs=EPOCHS,
            patience=EPOCHS,
            batch=replace(one.batch, per_epoch=max(1, steps[name] // EPOCHS)),
        )
        for name, one in settings.items()
    }


def measure(
    settings: Mapping[str, TrainSpec], sources: Sources, stated: Mapping[str, float], seeds: Sequence[int]
) -> dict[str, float | None]:
    """Returns what every recipe reaches, after how many core-seconds and steps, and its ratios to `adam`."""
    for spec in settings.values():
        train(replace(spec, epochs=1, batch=replace(spec.batch, per_epoch=2)), sources)
    clocks: dict[str, list[Clock]] = {name: [] for name in settings}
    for seed in seeds:
        for name, spec in settings.items():
            clocks[name].append(train(replace(spec, seed=seed), sources))
    step_s = naive_step_s(settings[BASELINE], sources)
    results: dict[str, float | None] = {"naive_pyg/step_ms": step_s * 1e3}
    monitored = next(iter(stated))
    worst = min if monitored in LARGER_IS_BETTER else max
    matched = [
        {monitored: worst(clock.best(monitored) for clock in of_seed)}
        for of_seed in zip(*clocks.values(), strict=True)
    ]
    for kind, bounds in (("stated", [stated] * len(seeds)), ("matched", matched)):
        until = {
            name: [clock.until(bound) for clock, bound in zip(of, bounds, strict=True)]
            for name, of in clocks.items()
        }
        seconds = {name: statistics.median(core_s for core_s, _ in of) for name, of in until.items()}
        steps = {name: statistics.median(steps for _, steps in of) for name, of in until.items()}
        seconds["naive_pyg"] = steps[BASELINE] * step_s if math.isfinite(seconds[BASELINE]) else math.inf
        for name, core_s in seconds.items():
            reached = math.isfinite(core_s)
            results[f"{name}/{kind}/core_s"] = core_s if reached else None
            if name in steps:
                results[f"{name}/{kind}/steps"] = steps[name] if reached else None
            both = reached and math.isfinite(seconds[BASELINE])
            results[f"{name}/{kind}/to_{BASELINE}"] = core_s / seconds[BASELINE] if both else None
    for name, of in clocks.items():
        results[f"{name}/core_s"] = statistics.median(clock.points[-1][0] for clock in of)
        results[f"{name}/best"] = statistics.median(clock.best(monitored) for clock in of)
    return results


def profile_sources(params: Path, task: str) -> tuple[TrainSpec, Sources]:
    """Returns the settings and the kernels of a profile's task.

    Raises:
        CostbenchError: for parameters that are wrong, or stages that have not run.
    """
    loaded = load_params(params)
    workspace = load_workspace(loaded, NO_FLAGS)
    spec: TrainSpec = getattr(loaded.section("train", TrainParams), task)
    features, chip = workspace.stage("features"), loaded.sections["features"]["chips"][0]
    programs = read_training_programs(workspace.stage("split") / "random.json")
    measured = with_samples(programs, features, task, chip)
    train, validation = (
        paths_of_programs(features, task, chip, names) for names in (measured.train, measured.validation)
    )
    return spec, Sources(train, validation)


def made_up(task: str) -> tuple[TrainSpec, Sources]:
    """Returns settings and kernels of the short form."""
    samples = [
        replace(kernel, analytical_ns=kernel.runtime_ns + 100.0)
        for kernel in kernels(0, 12, 8 if task == "tile" else 1)
    ]
    train, validation = (ColumnSource(part, columns_of(part)) for part in (samples[:8], samples[8:]))
    spec = getattr(load_params(Path("params.yaml")).section("train", TrainParams), task)
    net = replace(spec.net, hidden=8, opcode_embedding=4)
    return replace(spec, net=net), Sources(train, validation)


def main() -> None:
    """Prints a table, or one flat JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--params", type=Path, default=Path("params.yaml"), help="parameter file of a profile"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="tasks")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of the trainings")
    parser.add_argument(
        "--recipe", type=Path, help="parameter file of section train; that of --params if not given"
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS["recipe"], help="steps of a training by the recipe"
    )
    parser.add_argument("--short", action="store_true", help="made-up kernels and targets, in seconds")
    parser.add_argument("--json", action="store_true", help="print {task}/{recipe}/{metric}: value")
    arguments = parser.parse_args()
    results: dict[str, float | None] = {}
    for task in arguments.tasks:
        spec, sources = made_up(task) if arguments.short else profile_sources(arguments.params, task)
        steps = dict.fromkeys(STEPS, 32) if arguments.short else {**STEPS, "recipe": arguments.steps}
        if arguments.recipe:
            spec = getattr(load_params(arguments.recipe).section("train", TrainParams), task)
        targets = TARGETS[task]
        if arguments.short:
            targets = {name: 0.0 if name in LARGER_IS_BETTER else 1e4 for name in targets}
        hybrid = replace(spec, net=replace(spec.net, residual="analytical"))
        measured = measure(recipes(hybrid, task, steps), sources, targets, arguments.seeds)
        results |= {f"{task}/{name}": value for name, value in measured.items()}
    if arguments.json:
        print(json.dumps(results, indent=1, sort_keys=True))
        return
    for name, value in sorted(results.items()):
        print(f"{name:28} {'not reached' if value is None else f'{value:.3g}'}")


if __name__ == "__main__":
    main()
