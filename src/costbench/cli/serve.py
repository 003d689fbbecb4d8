"""The command `serve`: answers requests with a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    model: Annotated[
        str,
        typer.Argument(
            help="Address in the registry, such as `models:/costbench-tile-laptop@champion`, or the folder of"
            " a trained cell, such as `out/laptop/register/tile-fold1-tpu_v3-hybrid-s0`."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5001,
    limit: Annotated[
        list[str] | None, typer.Option(help="NAME=NUMBER, repeatable, such as tiles=1000 (docs/serving.md).")
    ] = None,
) -> None:
    """Answer requests for costs on one port, in MLflow's protocol and within limits (docs/serving.md).

    Example: `costbench serve models:/costbench-tile-laptop@champion --port 5001 --limit tiles=100000`
    """
    from costbench.serving.requests import limits_from
    from costbench.serving.server import listen
    from costbench.serving.server import serve as answer_requests
    from costbench.serving.service import load_service

    limits = limits_from(limit or ())
    folder, task, chip = trained_model(model)
    service = load_service(folder, task, chip, limits)
    with listen(host, port) as listening:
        typer.echo(f"{model}: http://{host}:{port}/invocations", err=True)
        answer_requests(service, limits, listening)


def trained_model(model: str) -> tuple[Path, str, str]:
    """Returns the folder of a model, and the task and chip that it was trained for."""
    from costbench.errors import DataError, ParamsError
    from costbench.experiments.grid.cells import cell_from_name
    from costbench.experiments.tracking.registry import is_registered, registered_model
    from costbench.experiments.tracking.runs import tracking_uri

    if is_registered(model):
        return registered_model(tracking_uri(), model)
    folder = Path(model)
    try:
        cell = cell_from_name(folder.resolve().name)
    except DataError as error:
        expected = "models:/NAME@ALIAS, or a folder named like its cell, such as tile-fold1-tpu_v3-hybrid-s0"
        raise ParamsError("is no trained model", where=model, expected=expected) from error
    return folder, cell.task, cell.chip
