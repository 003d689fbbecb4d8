"""Commands for TpuGraphs: folders in and out, features of HLO files, scores and the leaderboard's table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from costbench.cli.options import Json, print_table, program_stem

if TYPE_CHECKING:
    from costbench.experiments.tpugraphs.importing import Imported

Folder = Annotated[
    Path, typer.Argument(help="The data set as it unpacks: a folder with `npz`, or `pb` (raw files).")
]
Out = Annotated[Path, typer.Option(help="Folder of what is converted.")]
_OUT = Path("out/tpugraphs")


def import_tpugraphs(folder: Folder, out: Out = _OUT, as_json: Json = False) -> None:
    """Convert a folder of TpuGraphs to shards that training reads by memory map, and count what it holds.

    Reads `npz/tile/xla/{train,valid,test}` and `npz/layout/{xla,nlp}/{default,random}/{train,valid,test}`, or
    the same below `pb`. A graph of any size is converted in memory that does not depend on its number of
    configurations. What is converted already is kept, until its file changes.
    """
    from costbench.experiments.tpugraphs.importing import import_folder

    counts = import_folder(folder, out, _to_stderr)
    if as_json:
        typer.echo(json.dumps([count.to_dict() for count in counts], indent=1, sort_keys=True))
    else:
        _print_counts(counts)


def export_tpugraphs(
    folder: Annotated[Path, typer.Argument(help="Becomes the data set: `npz` and `pb`.")],
    params: Annotated[Path, typer.Option("--params", "-p", help="Parameter file of a profile.")] = Path(
        "params.yaml"
    ),
    chip: Annotated[str, typer.Option(help="Whose measurements.")] = "tpu_v3",
    split: Annotated[str, typer.Option(help="`random` or `manual`: which programs are `test`.")] = "random",
    npz: Annotated[bool, typer.Option(help="Write `.npz` files.")] = True,
    raw: Annotated[bool, typer.Option(help="Write raw files (`.pb`).")] = True,
) -> None:
    """Write measured tile sizes and layouts as TpuGraphs publishes them: keys, shapes and types are its own.

    The stages `generate` and `split` of the profile must have run. TpuGraphs' own baselines read the folder.
    """
    from costbench.experiments.tpugraphs.exporting import ExportOptions, export_folder

    counts = export_folder(ExportOptions(params, chip, split, npz, raw), folder, _to_stderr)
    for collection, parts in sorted(counts.items()):
        listed = ", ".join(f"{number:,} {part}" for part, number in sorted(parts.items()))
        typer.echo(f"{collection}: {listed}")


def featurize(
    file: Annotated[Path, typer.Argument(help="An HLO module, binary (.pb) or text, plain, .zst or .gz.")],
    out: Annotated[Path | None, typer.Option(help="The `.npz` file; beside FILE if left out.")] = None,
) -> None:
    """Write the 140 node features, opcodes and edges of any HLO file, as TpuGraphs has them.

    Keys: `node_feat` (n, 140) float32, `node_opcode` (n,) int32, `edge_index` (m, 2) int32 with rows
    (consumer, producer), `node_splits` (s,) int64. No build of XLA is needed.

    Example: `costbench featurize step.hlo.pb --out step.npz`
    """
    from costbench.experiments.tpugraphs.exporting import featurize_file

    destination = out or file.with_name(f"{program_stem(file)}.npz")
    nodes, edges = featurize_file(file, destination)
    typer.echo(f"{destination}: {nodes:,} nodes, {edges:,} edges")


def score(
    file: Annotated[Path, typer.Argument(help="A tile or layout `.npz` file of TpuGraphs.")],
    predictions: Annotated[
        Path, typer.Argument(help="A `.npy` file: a number per configuration, lower is faster.")
    ],
    as_json: Json = False,
) -> None:
    """Score predictions for one file with TpuGraphs' own metrics.

    `opa`: share of pairs of different runtimes in the right order. `kendall_tau`: tau-b. `top_K`: best of the
    K predicted fastest over best of all, minus 1 (K = 1, 5, 10 for tiles over normalised runtimes, 1, 10, 100
    for layouts). What is not defined is null: all of it where runtimes are withheld.

    Example: `costbench score resnet50.npz predictions.npy --json`
    """
    from costbench.experiments.tpugraphs.scoring import score_file

    metrics = score_file(file, predictions)
    if as_json:
        typer.echo(json.dumps(metrics))
        return
    for name, value in metrics.items():
        typer.echo(f"{name:>12}  {'not defined' if value is None else f'{value:.4f}'}")


def submission(
    folder: Folder,
    table: Annotated[Path, typer.Argument(help="The CSV file: `ID,TopConfigs`.")],
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Folder of `<collection>/<graph>.npy`, such as `tile-xla/net_1f.npy`; writes TABLE."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="`test` for the leaderboard.")] = "test",
    out: Out = _OUT,
    as_json: Json = False,
) -> None:
    """Write the leaderboard's table from predictions, or score a table on a split whose runtimes are known.

    Example: `costbench submission tpugraphs table.csv --predictions out/predictions`

    Example: `costbench submission tpugraphs table.csv --split valid --json`
    """
    from costbench.experiments.tpugraphs.importing import open_folder
    from costbench.experiments.tpugraphs.scoring import score_submission, submission_of, write_submission

    data = open_folder(folder, out)
    if predictions is not None:
        lines = submission_of(data, predictions, split)
        write_submission(table, lines)
        typer.echo(f"{table}: {len(lines):,} graphs", err=as_json)
        return
    scores = score_submission(table, data, split)
    typer.echo(json.dumps(scores, indent=1, sort_keys=True) if as_json else f"score {scores['score']}")


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


def _print_counts(counts: Sequence[Imported]) -> None:
    headers = ("collection", "split", "graphs", "programs", "nodes", "edges", "configs", "labelled")
    rows = []
    for count in counts:
        facts = count.to_dict()
        rows.append([count.collection, count.split, *(f"{facts[name]:,}" for name in headers[2:])])
    print_table(headers, rows, text=headers[:2])


COMMANDS = (import_tpugraphs, export_tpugraphs, featurize, score, submission)
"""In the order of the help."""
