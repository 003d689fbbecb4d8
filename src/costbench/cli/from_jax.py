"""`costbench from-jax`: a JAX function of one's own as an HLO file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def from_jax(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="In the current folder, or installed.")
    ],
    shapes: Annotated[
        list[str] | None, typer.Argument(help="Of its arguments, as XLA writes them: `f32[32,784]`, `s32[]`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; `FUNCTION.hlo.pb` if left out.")
    ] = None,
) -> None:
    """Lower a JAX function for a TPU, without a TPU, into an HLO file that all other commands read.

    Arguments that are trees need no shapes: without any, FUNCTION is called and returns a pair of the
    function to lower and a tuple of its arguments, arrays or `jax.ShapeDtypeStruct`. Needs JAX, which the
    extra `corpus` has.

    Examples:

    `costbench from-jax model:step "f32[32,784]" "s32[32]" --out step.hlo.pb`

    `costbench tune step.hlo.pb`
    """
    from costbench.artifacts import write_bytes
    from costbench.hlo.reader import module_from_bytes
    from costbench.programs.canonical import lower_function

    destination = out or Path(f"{function.rpartition(':')[2]}.hlo.pb")
    proto = lower_function(function, shapes or ())
    # What is written can be read: `tune` would refuse it otherwise.
    module = module_from_bytes(proto, where=function)
    write_bytes(destination, proto)
    typer.echo(f"{destination}: {module.num_instructions:,} instructions; next: costbench tune {destination}")
