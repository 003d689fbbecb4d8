"""Searches over the fusions of many programs on this processor, with a model and without, at equal seconds.

Each program has a process of its own, and its rows are kept when it ends: a run that was stopped goes on
with the programs that have none. A search ends with XLA's own fusions where it found nothing faster. What
searches end with is run anew beside XLA's own, all in the same new processes.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from costbench.artifacts import read_json, write_json
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.autotuning.search import Plan, Shortlist, measure_best, tune
from costbench.autotuning.trace import SearchTrace
from costbench.datasets.machine_searches import (
    HARDWARE,
    MODEL,
    RANDOM,
    XLA,
    read_card,
    read_searches,
    write_searches,
)
from costbench.datasets.splits import read_split
from costbench.errors import CostbenchError, DataError
from costbench.experiments.autotuning.fusion_tuning import STRATEGY
from costbench.experiments.autotuning.machine_models import RECORDS, machine_model
from costbench.experiments.autotuning.machine_tuning import MachineTuner, best_of
from costbench.experiments.autotuning.session import ANALYTICAL
from costbench.hardware.xla_cpu.backend import GIVEN_FLAGS, OWN_FLAGS, require_jax
from costbench.hardware.xla_cpu.comparison import OWN
from costbench.hardware.xla_cpu.program import CHIP
from costbench.hardware.xla_cpu.reading import machine_program, read_program_proto
from costbench.params import parse
from costbench.programs.manifest import ProgramEntry
from costbench.rng import stream

FOLD = "{fold}"
LEFT_OUT, MACHINE, SETTINGS = "left_out", "machine", "settings"
_RANDOM_DRAWS = 10
_STARTS = (XLA, RANDOM)


@dataclass(frozen=True)
class SearchSettings:
    """How much each search does.

    Attributes:
        seconds: processor seconds of a search, for compiling and running.
        model: model that is asked first in one of the two kinds of search; `none` for hardware alone. In the
            path of a network, `{fold}` stands for the fold in whose test set the program is.
        model_seconds: seconds charged for its predictions.
        processes: new processes in which choices are run beside XLA's own fusions.
        compare_seconds: seconds of these processes, compiling not counted.
        seed: seed of searches, starts and inputs.
        records: folder of recorded runtimes, for models that are fitted to them.
        splits: folder of the folds that networks were trained on.
    """

    seconds: float = 60.0
    model: str = "analytical"
    model_seconds: float = 60.0
    processes: int = 5
    compare_seconds: float = 60.0
    seed: int = 0
    records: str = str(RECORDS)
    splits: str = str(Path("out") / CHIP / "split")

    def __post_init__(self) -> None:
        for name in ("seconds", "model_seconds", "compare_seconds"):
            if not 0.0 < getattr(self, name) < math.inf:
                option = "--" + name.replace("_", "-")
                raise DataError(f"{getattr(self, name)}", field=option, expected="seconds, above 0")
        if self.processes < 2:
            raise DataError(f"{self.processes}", field="--processes", expected="at least 2")

    def model_of(self, program: str) -> str:
        """Returns the model of a program: one that was trained without its application, where it has folds.

        Raises:
            DataError: if the program is in the test set of no fold.
        """
        if FOLD not in self.model:
            return self.model
        folds = Path(self.splits)
        for path in sorted(folds.glob("fold*.json")):
            split = read_split(path)
            if program in split.test:
                return self.model.replace(FOLD, split.name)
        raise DataError("is in no test set", where=folds, field=program, expected="one fold that tests it")


@dataclass(frozen=True)
class _Order:
    """What the process of one program is told."""

    name: str
    application: str
    file: str
    settings: SearchSettings


def search_programs(
    entries: Sequence[ProgramEntry],
    programs: Path,
    out: Path,
    work: Path,
    settings: SearchSettings,
    report: Callable[[str], None],
) -> None:
    """Searches all programs that have no rows yet, and writes the rows after each.

    Args:
        entries: the programs.
        programs: folder that they are in.
        out: folder of the results (`datasets.machine_searches`).
        work: folder of compiled files.
        settings: settings of the searches.
        report: called with a line for each program.

    Raises:
        DataError: if the results in the folder are of other settings or another machine, or a program is in
            the test set of no fold that a network was trained on.
    """
    require_jax()
    card = _card(read_card(out), settings, out)
    for entry in entries:
        settings.model_of(entry.name)
    rows: list[Mapping[Any, Any]] = [*read_searches(out).to_dict("records")]
    done = {row["program"] for row in rows} | set(card[LEFT_OUT])
    for number, entry in enumerate(entries, start=1):
        if entry.name in done:
            continue
        done.add(entry.name)
        order = _Order(entry.name, entry.application, str(programs / entry.file), settings)
        made, reason = _in_process(order, work / entry.name)
        if reason:
            card[LEFT_OUT][entry.name] = reason
        rows += made
        write_searches(out, rows, card)
        gains = ", ".join(f"{row['start']} {row['arm']} {row['gain']:.3f}" for row in made)
        report(f"{number} of {len(entries)}: {entry.name}: {gains or f'left out: {reason}'}")


def _card(card: dict[str, Any], settings: SearchSettings, out: Path) -> dict[str, Any]:
    """Returns the card of a run that begins or goes on."""
    new = {MACHINE: describe_machine(), SETTINGS: asdict(settings)}
    for key, value in new.items():
        if card and card.get(key) != value:
            expected = "another --out, or the same as in the results there"
            raise DataError(f"is another {key}", where=out, field=key, expected=expected)
    return {LEFT_OUT: {}, **card, **new}


def describe_machine() -> dict[str, object]:
    """Returns processor, system, versions and flags, as the card of searches has them."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = [line.partition(":") for line in cpuinfo.read_text("utf-8").splitlines()]
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib")}
    flags = {"own": OWN_FLAGS, "given": GIVEN_FLAGS}
    return {"processor": model, "system": platform.system(), "versions": versions, "flags": flags}


def _in_process(order: _Order, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Returns the rows of a program, and why it has none."""
    path, result = folder / "order.json", folder / "rows.json"
    result.unlink(missing_ok=True)
    write_json(path, asdict(order))
    command = [sys.executable, "-m", "costbench.experiments.autotuning.machine_searches", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if not result.exists():
        lines = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"]
        return [], lines[-1][:300]
    content: Any = read_json(result)
    return content, ""


def search_program(order: _Order, folder: Path) -> list[dict[str, Any]]:
    """Runs the four searches of a program and compares what they end with; returns their rows."""
    settings = order.settings
    path = Path(order.file)
    program = machine_program(read_program_proto(path), path, order.name)
    tuner = MachineTuner(program, folder, settings.seed)
    model = machine_model(settings.model_of(order.name), program.module, order.name, Path(settings.records))
    searches = {
        (start, arm): search
        for start in _STARTS
        for arm, search in _search_from(tuner, start, model, settings).items()
    }
    chosen = {key: number for key, (number, _) in searches.items() if number is not None}
    names = {number: f"config{index}" for index, number in enumerate(dict.fromkeys(chosen.values()))}
    modules = {name: tuner.module_of(number) for number, name in names.items()}
    compared = tuner.compare(modules, processes=settings.processes, seconds=settings.compare_seconds)
    own_ns = float(np.median(compared.runtime_ns[OWN]))
    rows = []
    for (start, arm), (_, spent) in searches.items():
        row: dict[str, Any] = {
            "program": order.name,
            "application": order.application,
            "start": start,
            "arm": arm,
            "budget_s": settings.seconds,
            **spent,
            "own_ns": round(own_ns),
        }
        ending = {"chosen_ns": round(own_ns), "gain": 1.0, "low": 1.0, "high": 1.0, "difference": 0.0}
        if (start, arm) in chosen:
            name = names[chosen[start, arm]]
            gain = compared.gain(name)
            ending = {
                "chosen_ns": round(float(np.median(compared.runtime_ns[name]))),
                "gain": gain.estimate,
                "low": gain.low,
                "high": gain.high,
                "difference": compared.difference[name],
            }
        rows.append(row | ending | {"is_own": (start, arm) not in chosen})
    return rows


def _search_from(
    tuner: MachineTuner, start: str, model: KernelCosts | None, settings: SearchSettings
) -> dict[str, tuple[int | None, dict[str, Any]]]:
    """Returns, by kind of search, the number of the config that beats XLA's own fusions, and what it cost."""
    budget, first = MeasurementBudget(seconds=settings.seconds), (_start(tuner, start, settings.seed),)
    alone = tune(tuner.problem, tuner.device(), Plan(STRATEGY, budget, settings.seed, first))
    traces: dict[str, tuple[SearchTrace | None, SearchTrace]] = {HARDWARE: (None, alone)}
    if model is not None:
        plan = Plan(STRATEGY, MeasurementBudget(seconds=settings.model_seconds), settings.seed, first)
        name = settings.model if settings.model == ANALYTICAL else MODEL
        predicted = tune(tuner.problem, tuner.predictor(model, name), plan)
        shortlist = Shortlist(None, distinct=True, budget=budget)
        measured = measure_best(tuner.problem, predicted, tuner.device(), shortlist)
        traces[f"{name} and {HARDWARE}"] = (predicted, measured)
    return {arm: _ending(tuner, *pair) for arm, pair in traces.items()}


def _ending(
    tuner: MachineTuner, predicted: SearchTrace | None, measured: SearchTrace
) -> tuple[int | None, dict[str, Any]]:
    best = best_of(measured)
    spent = {
        "spent_s": float(sum(measured.seconds)),
        "measured": len(measured),
        "predicted": 0 if predicted is None else len(predicted),
    }
    return (best if best is not None and measured.best_score < tuner.own_ns else None), spent


def _start(tuner: MachineTuner, start: str, seed: int) -> int:
    """Returns the number of the config that a search starts from; a random one is drawn until it runs."""
    if start == XLA:
        return tuner.nearest
    rng = stream(seed, "autotuning", "random start", tuner.program.name)
    for _ in range(_RANDOM_DRAWS):
        config = rng.integers(2, size=(1, len(tuner.program.space.default))).astype(np.int16)
        if np.isfinite(tuner.device().evaluate(config).scores[0]):
            return tuner.number(config[0])
    expected = f"one of {_RANDOM_DRAWS} that runs"
    raise DataError("no random config runs", where=tuner.program.name, expected=expected)


def main(folder: Path) -> int:
    """Searches the program of a folder; returns 1 where it is left out."""
    order = parse(_Order, read_json(folder / "order.json"), where=folder, error=DataError)
    try:
        rows = search_program(order, folder)
    except CostbenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write_json(folder / "rows.json", json.loads(json.dumps(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
