"""Commands that run a stage of the pipeline each; `train` and `evaluate` also take a data set of your own."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from costbench.cli.options import (
    BackendName,
    ExperimentName,
    Jobs,
    Params,
    Scheduler,
    Seeds,
    backend_flags,
    calm_threads,
    refuse_given,
    run_stage,
)
from costbench.errors import DataError

Archive = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        help="Archive of packed results, such as data/results/evidence: cells in it are not computed again."
        " Or COSTBENCH_ARCHIVE.",
    ),
]
_OWN_DATA = "A data set of your own"
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Instead of an experiment: `tpugraphs:DIR`, a layout `.npz`, or a layout graph (`.arrow`).",
        rich_help_panel=_OWN_DATA,
    ),
]
Collection = Annotated[
    str | None,
    typer.Option(
        help="Collection of `tpugraphs:DIR`: `layout:xla:random`, `tile:xla`; not needed if it has one.",
        rich_help_panel=_OWN_DATA,
    ),
]
Cache = Annotated[
    Path,
    typer.Option(help="Where converted graphs are kept.", rich_help_panel=_OWN_DATA),
]
Threads = Annotated[
    int,
    typer.Option(
        min=1,
        help="Threads; several are faster on idle cores only, and many times slower beside other work.",
        rich_help_panel=_OWN_DATA,
    ),
]
_OF_EXPERIMENTS = ("params", "experiment", "archive", "seeds", "backend", "scheduler", "jobs")
"""Options that have no effect on a data set of one's own."""
_CACHE = Path("out/cache")
_MODEL = Path("out/model")
_LINE_EVERY_S = 5.0


class EpochLines:
    """Prints the metrics of an epoch on stderr, now and then.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last_s = clock, -math.inf

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Prints the metrics after `step` steps, unless others were printed within five seconds."""
        now_s = self._clock()
        if now_s - self._last_s >= _LINE_EVERY_S:
            self._last_s = now_s
            values = ", ".join(f"{name} {value:.4f}" for name, value in sorted(metrics.items()))
            typer.echo(f"costbench: step {step:,}: {values}", err=True)


def train(  # noqa: PLR0913 (a command has its options)
    context: typer.Context,
    params: Params = Path("params.yaml"),
    experiment: ExperimentName = None,
    archive: Archive = None,
    seeds: Seeds = None,
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    data: Data = None,
    collection: Collection = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of hyper-parameters: fields of `LayoutTrainSpec`, for tiles `TrainSpec`"
            " (docs/layout_models.md).",
            rich_help_panel=_OWN_DATA,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the model.", rich_help_panel=_OWN_DATA)] = _MODEL,
    seed: Annotated[
        int,
        typer.Option(help="Seed of weights, draws and held-out configs.", rich_help_panel=_OWN_DATA),
    ] = 0,
    threads: Threads = 1,
    cache: Cache = _CACHE,
) -> None:
    """Train the learned cost models of experiments, one cell per split, chip, variant and seed.

    Finished cells are kept: after a kill, the next run trains what is missing.

    **On data of your own**, one network is trained and written to `--out`. TpuGraphs' folder has its own
    splits; of a single graph, some configs are held out (a fifth to score, a tenth to choose the epoch):

    `costbench train --data unet_3d.4x4.bf16.npz --out out/unet`

    `costbench evaluate --data unet_3d.4x4.bf16.npz --model out/unet`
    """
    if data is None:
        refuse_given(context, ("collection", "settings", "out", "seed", "threads", "cache"), "without --data")
        from costbench.experiments.packed_cells import packed_cells
        from costbench.experiments.stages.train import run

        flags, packed = backend_flags(backend, scheduler, jobs), packed_cells(archive)
        run_stage(lambda path: run(path, experiment, flags, packed, seeds), params)
        return
    refuse_given(context, _OF_EXPERIMENTS, "with --data")
    calm_threads()
    from costbench.execution.workers import start_logging
    from costbench.experiments.tpugraphs.training import ImportedData, train_on

    start_logging()
    source = ImportedData(data, collection, cache)
    monitor, fit = train_on(source, settings, out, seed, threads, EpochLines(time.monotonic))
    typer.echo(
        f"{fit.checkpoint}: validation {monitor} {fit.best_metric:.4f} after epoch {fit.best_epoch + 1},"
        f" {fit.steps} steps in {fit.seconds:.0f} s"
    )


def evaluate(  # noqa: PLR0913 (a command has its options)
    context: typer.Context,
    params: Params = Path("params.yaml"),
    experiment: ExperimentName = None,
    archive: Archive = None,
    seeds: Seeds = None,
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    data: Data = None,
    collection: Collection = None,
    model: Annotated[Path, typer.Option(help="Folder of the model.", rich_help_panel=_OWN_DATA)] = _MODEL,
    split: Annotated[
        str, typer.Option(help="Split of `tpugraphs:DIR`.", rich_help_panel=_OWN_DATA)
    ] = "valid",
    threads: Threads = 1,
    cache: Cache = _CACHE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OWN_DATA)] = False,
) -> None:
    """Let the cost models of experiments rank tile sizes or predict runtimes, on the test programs.

    **On data of your own**: OPA, Kendall's tau and top-K slowdowns, layouts graph by graph, tiles program
    by program. Of a layout graph that the model was trained on, only configs count that were held out.
    """
    if data is None:
        refuse_given(
            context, ("collection", "model", "split", "threads", "cache", "as_json"), "without --data"
        )
        from costbench.experiments.packed_cells import packed_cells
        from costbench.experiments.stages.evaluate import run

        flags, packed = backend_flags(backend, scheduler, jobs), packed_cells(archive)
        run_stage(lambda path: run(path, experiment, flags, packed, seeds), params)
        return
    refuse_given(context, _OF_EXPERIMENTS, "with --data")
    calm_threads()
    from costbench.experiments.tpugraphs.training import ImportedData, evaluate_on

    source = ImportedData(data, collection, cache)
    if not source.is_folder:
        refuse_given(context, ("split",), "with a file")
    scored = evaluate_on(source, split, model, threads)
    if as_json:
        typer.echo(json.dumps([graph.to_dict() for graph in scored], indent=1, sort_keys=True))
        return
    for graph in scored:
        typer.echo(f"{graph.graph} ({graph.num_configs} {graph.which} configs): {graph.line()}")


def collect(
    names: Annotated[list[str] | None, typer.Argument(help="Programs to build; all when left out.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the corpus is written.")] = Path("data/programs"),
    jobs: Annotated[int, typer.Option(min=1, help="Programs built side by side.")] = 2,
    force: Annotated[bool, typer.Option(help="Build also what is there and current.")] = False,
    processor: Annotated[
        bool,
        typer.Option("--processor", help="Those that `costbench measure` records, of small batches."),
    ] = False,
) -> None:
    """Build the programs of the corpus from the model zoo (needs a checkout, jax and keras).

    `pip install -e '.[corpus]'` in the checkout installs what is needed. The same versions of jax and keras
    give the same bytes. The corpus is in git, so this is only needed after a change to the zoo.
    """
    if names and processor:
        raise DataError("has no effect with --processor", field="NAMES", expected="to be left out")
    makers = Path.cwd() / "corpus"
    if not (makers / "collector.py").is_file():
        raise DataError("no makers of the corpus", where=makers, expected="a checkout of costbench")
    # Installed commands do not look for modules in the current folder, nor do the processes that they start.
    sys.path.insert(0, str(makers.parent))
    from corpus.collector import collect as build
    from corpus.processor_programs import processor_specs

    if processor:
        names = [spec.name for spec in processor_specs()]

    def progress(done: int, total: int, name: str) -> None:
        typer.echo(f"[{done}/{total}] {name}", err=True)

    result = build(folder, names or None, jobs, progress, force)
    typer.echo(f"{len(result.built)} built, {len(result.unchanged)} kept, {len(result.removed)} removed")


def generate(
    params: Params = Path("params.yaml"),
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Compile the programs and measure their kernels' decisions on the simulated chips.

    One shard per program and chip. Finished shards are kept: after a kill, the next run goes on where it
    stopped, and any number of processes or machines leaves the same bytes.

    **On several machines** (as `features`, `sweep`, `train`, `evaluate` and `autotune`; needs the extra
    `scale` everywhere, and a folder that all of them see; docs/scale.md):

    `dask scheduler` on one, `dask worker tcp://HOST:8786 --nthreads 1 --nworkers 8` on each, then

    `costbench generate --params profiles/paper/params.yaml --scheduler tcp://HOST:8786`
    """
    from costbench.experiments.stages.generate import run

    run_stage(lambda path: run(path, backend_flags(backend, scheduler, jobs)), params)


def split(params: Params = Path("params.yaml")) -> None:
    """Divide the programs into training, validation and test sets, and audit them for leaks."""
    from costbench.experiments.stages.split import run

    run_stage(run, params)


def features(
    params: Params = Path("params.yaml"),
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Compute the features of the measured kernels, once for all training runs.

    One shard per task, chip and program; finished shards of the same samples are kept.
    """
    from costbench.experiments.stages.features import run

    run_stage(lambda path: run(path, backend_flags(backend, scheduler, jobs)), params)


def sweep(  # noqa: PLR0913 - each is an option
    params: Params = Path("params.yaml"),
    task: Annotated[str | None, typer.Option(help="Sweep this task only: `tile` or `fusion`.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials to finish, of all workers together.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers on one study, each a work item.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database of the study; otherwise OPTUNA_STORAGE, or a SQLite file.")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study; otherwise one made from all that it depends on.")
    ] = None,
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Search for the learned cost model's best hyper-parameters with Optuna, one study per task.

    A study that is there is continued; a trial whose worker died is begun again. With one worker the same
    parameters give the same trials. What is not given here is taken from the section `sweep`.

    **On several machines**: the same command on each, with the same data and PostgreSQL (needs the extra
    `sweep-postgres`):

    `costbench sweep --task tile --workers 8 --storage postgresql+psycopg://USER@HOST/DATABASE`

    Optuna's own tools read the same study: `optuna studies`, `optuna trials`, `optuna-dashboard`.
    """
    from costbench.experiments.stages.sweep import SweepFlags, run

    flags = SweepFlags(task, trials, workers, storage, study)
    run_stage(lambda path: run(path, flags, backend_flags(backend, scheduler, jobs)), params)


def autotune(
    params: Params = Path("params.yaml"),
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
) -> None:
    """Put cost models into compiler and autotuners, and see what programs gain.

    Finished work items are kept: after a kill, the next run tunes what is missing.
    """
    from costbench.experiments.stages.autotune import run

    run_stage(lambda path: run(path, backend_flags(backend, scheduler, jobs)), params)


def register(params: Params = Path("params.yaml")) -> None:
    """Make the best trained model of each task its champion in MLflow's model registry (docs/serving.md).

    `costbench runs best --register` makes another one the champion.
    """
    from costbench.experiments.stages.register import run

    run_stage(run, params)


def report(
    params: Params = Path("params.yaml"),
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out experiments that are not finished, and name them.")
    ] = False,
) -> None:
    """Render the report: pages, figures, tables as CSV, `summary.json`, and the verdicts on claims."""
    from costbench.reports.stage import run

    run_stage(lambda path: run(path, partial=partial), params)


STAGES = (collect, generate, split, features, sweep, train, evaluate, autotune, register, report)
"""In the order of the pipeline."""
