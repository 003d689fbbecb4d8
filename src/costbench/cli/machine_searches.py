"""`costbench search-fusions`: searches over fusions of many programs on this processor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from costbench.cli.options import calm_threads


def search_fusions(  # noqa: PLR0913 (a command has its options)
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROGRAM]…", help="Programs; all of the folder if left out."),
    ] = None,
    programs: Annotated[Path, typer.Option(help="Folder of the programs, with their manifest.json.")] = Path(
        "data/xla_cpu/programs"
    ),
    out: Annotated[
        Path, typer.Option(help="Folder of the results, which git keeps; existing ones are gone on with.")
    ] = Path("data/results/xla_cpu_searches"),
    work: Annotated[Path, typer.Option(help="Folder of what is compiled.")] = Path("out/xla_cpu_searches"),
    seconds: Annotated[
        float, typer.Option(help="Processor seconds of each of the four searches of a program.")
    ] = 60.0,
    model: Annotated[
        str,
        typer.Option(
            help="Asked first in two of them, as in `costbench tune`; `none`: hardware alone. In the "
            "path of a network, {fold} stands for the fold in whose test set a program is."
        ),
    ] = "analytical",
    model_seconds: Annotated[float, typer.Option(help="Seconds charged for its predictions.")] = 60.0,
    processes: Annotated[
        int, typer.Option(help="New processes in which choices are run beside XLA's own fusions.")
    ] = 5,
    compare_seconds: Annotated[float, typer.Option(help="Seconds that they run, all together.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of searches, starts and inputs.")] = 0,
    records: Annotated[
        Path, typer.Option(help="Recorded runtimes, which the model `analytical` is fitted to.")
    ] = Path("data/xla_cpu"),
    splits: Annotated[Path, typer.Option(help="Folds that networks were trained on.")] = Path(
        "out/xla_cpu/split"
    ),
) -> None:
    """Search for fusions of many programs on this processor, with a model and without, at equal seconds.

    Each program is searched from the config nearest to XLA's own fusions and from a random one, on hardware
    alone and on a model first. What the searches end with is run anew beside XLA's own fusions, in new
    processes, and has to give equal results. A program whose rows are there is not searched again, so a run
    that was stopped goes on. Needs the extra `jax`; `make report` shows the rows.

    Example: `costbench search-fusions mlp_mnist_b128_infer_f32 --seconds 30`
    """
    from costbench.errors import choose
    from costbench.experiments.autotuning.machine_searches import SearchSettings, search_programs
    from costbench.programs.manifest import load_manifest

    calm_threads()
    entries = {entry.name: entry for entry in load_manifest(programs)}
    chosen = [choose(entries, name, "program") for name in names or entries]
    settings = SearchSettings(
        seconds, model, model_seconds, processes, compare_seconds, seed, str(records), str(splits)
    )
    search_programs(chosen, programs, out, work, settings, lambda line: typer.echo(line, err=True))
