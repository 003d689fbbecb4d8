"""`costbench import-profile`: kernels with their runtimes from profiles of real machines."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import Json, announce_compiling, calm_threads, print_table

if TYPE_CHECKING:
    from costbench.datasets.profiles.importing import ImportedProfiles
    from costbench.experiments.evaluation.profiles import ProfileScore

_METRICS = {
    "mape": "MAPE (%)",
    "mape_ge5us": "from 5 µs",
    "kendall_tau": "Kendall's τ",
    "kendall_tau_ge5us": "from 5 µs",
}


def import_profile(
    logdir: Annotated[
        Path, typer.Argument(help="The folder given to `jax.profiler.trace`, or one `.xplane.pb` file.")
    ],
    hlo: Annotated[
        Path | None,
        typer.Option(
            help="Compiled modules, where the profile does not hold them: a file, or the folder of XLA's"
            " `--xla_dump_to`."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the data set.")] = Path("out/profile"),
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Predicts the kernels: `analytical` (the default), the folder of a trained network or of"
            " fitted baselines, an address in the registry, or your own `mymodel:MyModel`. May be repeated."
        ),
    ] = None,
    chip: Annotated[
        str,
        typer.Option(
            help="The chip for which features and estimates are computed, by name or as a YAML file; if left"
            " out the profile's, where it is a known one, and tpu_v3 otherwise."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Import profiles of a real machine, a TPU, GPU or CPU, and say how well models predict its kernels.

    Reads what `jax.profiler.trace` writes, without JAX. Kernels and their runtimes, the smallest of all runs,
    become a data set of the fusion task in OUT whose chip is the device's name; `profile.json` in it counts
    what became none.

    Example: `costbench import-profile trace --model
    out/laptop/train/folds-fusion/fusion-fold1-tpu_v3-main-s0`
    """
    from costbench.datasets.profiles.importing import import_profiles
    from costbench.experiments.evaluation.profiles import score_profiles

    calm_threads()
    announce_compiling()
    imported = import_profiles(logdir, out, dump=hlo, tiles_of=chip)
    scores = score_profiles(out, imported, model or ["analytical"])
    if as_json:
        content = asdict(imported) | {"scores": [asdict(score) for score in scores]}
        typer.echo(json.dumps(content, indent=1, sort_keys=True))
        return
    _print_programs(imported)
    _print_scores(scores, imported.device)
    typer.echo(f"{100 * imported.share:.1f}% of the time of all operations is in samples, which are in {out}")
    for part in imported.left_out:
        of_all = f"{part.operations:,} operations, {100 * part.share:.1f}% of the time"
        typer.echo(f"left out: {of_all}, e.g. {part.example}: {part.reason}")
    if imported.num_damaged:
        typer.echo(f"left out: {imported.num_damaged:,} events with negative times or without a name")


def _print_programs(imported: ImportedProfiles) -> None:
    rows = []
    for program in imported.programs:
        counts = (program.executions, program.operations, program.kernels)
        figures = (f"{program.run_ns / 1e6:,.3f}", f"{program.spread:.2f}")
        rows.append([program.name, *(f"{count:,}" for count in counts), *figures])
    headers = ["program", "runs", "operations", "kernels"]
    headers += ["time in kernels, a run (ms)", "median / fastest run"]
    print_table(headers, rows, title=f"Profiled on {imported.device}")


def _print_scores(scores: list[ProfileScore], device: str) -> None:
    rows = []
    for score in scores:
        metrics = (score.metrics.get(name) for name in _METRICS)
        figures = ("–" if value is None else f"{value:.3g}" for value in metrics)
        rows.append([score.program, score.model, f"{score.kernels:,}", f"{score.kernels_ge5us:,}", *figures])
    headers = ("program", "model", "kernels", "from 5 µs", *_METRICS.values())
    title = f"Predictions of the kernels that have a choice of tile sizes, against {device}"
    print_table(headers, rows, title=title, text=headers[:2])
