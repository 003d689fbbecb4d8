"""`costbench train` and `costbench evaluate`: the stages, or with `--data` one data set of your own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from costbench.cli.options import (
    BackendName,
    ExperimentName,
    Jobs,
    Params,
    Scheduler,
    backend_flags,
    run_stage,
)

Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Instead of an experiment: `tpugraphs:DIR`, a layout `.npz`, or a layout graph (`.arrow`).",
        rich_help_panel="A data set of your own",
    ),
]
Collection = Annotated[
    str | None,
    typer.Option(
        help="Of `tpugraphs:DIR`, such as `layout:xla:random`, `tile:xla`; may be left out if there is one.",
        rich_help_panel="A data set of your own",
    ),
]
Cache = Annotated[
    Path,
    typer.Option(help="Where converted graphs are kept.", rich_help_panel="A data set of your own"),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads; all cores if left out.", rich_help_panel="A data set of your own"),
]
_CACHE = Path("out/cache")
_MODEL = Path("out/model")


def train(  # noqa: PLR0913 (a command has its options)
    params: Params = Path("params.yaml"),
    experiment: ExperimentName = None,
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
            rich_help_panel="A data set of your own",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the model.", rich_help_panel="A data set of your own")
    ] = _MODEL,
    seed: Annotated[
        int,
        typer.Option(
            help="Of weights, draws and held-out configs.", rich_help_panel="A data set of your own"
        ),
    ] = 0,
    threads: Threads = None,
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
        from costbench.experiments.stages.train import run

        run_stage(lambda path: run(path, experiment, backend_flags(backend, scheduler, jobs)), params)
        return
    from costbench.execution.workers import start_logging
    from costbench.experiments.given_data import GivenData, train_on

    start_logging()
    fit = train_on(GivenData(data, collection, cache), settings, out, seed, threads)
    typer.echo(
        f"{fit.checkpoint}: validation {fit.monitor} {fit.best_metric:.4f} after epoch {fit.best_epoch + 1},"
        f" {fit.steps} steps in {fit.seconds:.0f} s"
    )


def evaluate(  # noqa: PLR0913 (a command has its options)
    params: Params = Path("params.yaml"),
    experiment: ExperimentName = None,
    backend: BackendName = None,
    scheduler: Scheduler = None,
    jobs: Jobs = None,
    data: Data = None,
    collection: Collection = None,
    model: Annotated[
        Path, typer.Option(help="Folder of the model.", rich_help_panel="A data set of your own")
    ] = _MODEL,
    split: Annotated[
        str, typer.Option(help="Of `tpugraphs:DIR`.", rich_help_panel="A data set of your own")
    ] = "valid",
    threads: Threads = None,
    cache: Cache = _CACHE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel="A data set of your own")
    ] = False,
) -> None:
    """Let the cost models of experiments rank tile sizes or predict runtimes, on the test programs.

    **On data of your own**: OPA, Kendall's tau and top-K slowdowns, layouts graph by graph, tiles program
    by program. Of a layout graph that the model was trained on, only configs count that were held out.
    """
    if data is None:
        from costbench.experiments.stages.evaluate import run

        run_stage(lambda path: run(path, experiment, backend_flags(backend, scheduler, jobs)), params)
        return
    from costbench.experiments.given_data import GivenData, evaluate_on

    scored = evaluate_on(GivenData(data, collection, cache), split, model, threads)
    if as_json:
        typer.echo(json.dumps([one.to_dict() for one in scored], indent=1, sort_keys=True))
        return
    for one in scored:
        typer.echo(f"{one.graph} ({one.num_configs} {one.which} configs): {one.line()}")
