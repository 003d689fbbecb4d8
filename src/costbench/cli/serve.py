"""The command `serve`: answers requests with a registered model."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    model: Annotated[
        str, typer.Argument(help="Address in the registry, such as `models:/costbench-tile-laptop@champion`.")
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
    from costbench.errors import ParamsError
    from costbench.experiments.tracking.registry import is_registered, registered_model
    from costbench.experiments.tracking.runs import tracking_uri
    from costbench.serving.requests import limits_from
    from costbench.serving.server import serve as answer_requests
    from costbench.serving.service import load_service

    limits = limits_from(limit or ())
    if not is_registered(model):
        raise ParamsError("is no registered model", where=model, expected="models:/NAME@ALIAS")
    registered = registered_model(tracking_uri(), model)
    service = load_service(registered.folder, registered.task, registered.chip, limits)
    typer.echo(f"{model}: http://{host}:{port}/invocations", err=True)
    answer_requests(service, limits, host, port)
