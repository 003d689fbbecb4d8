"""`costbench measure`: programs and their kernels on the processor of this computer, by XLA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costbench.cli.options import Json, console, print_table, program_stem, refuse_given

if TYPE_CHECKING:
    from costbench.arrays import I16
    from costbench.hardware.xla_cpu.device import CompiledConfig, ConfigRuns, ProgramRunner
    from costbench.hardware.xla_cpu.program import MachineProgram

_LISTED = 30
_NS_PER_MS, _NS_PER_US = 1e6, 1e3


def measure(  # noqa: PLR0913 (a command has its options)
    context: typer.Context,
    program: Annotated[
        Path,
        typer.Argument(
            help="An HLO module, binary (.pb) or text, plain, .zst or .gz; with --record a folder of them."
        ),
    ],
    fusions: Annotated[
        Path | None,
        typer.Option(
            help='JSON: `{"fused": [0, 1, ...]}`, a number for every edge of the fusion space, or'
            ' `{"fusions": [["add.3", "exp.4"]]}`, names of instructions; the default heuristic if left out.'
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also list the kernels, those that take most first.")
    ] = False,
    core: Annotated[
        int | None, typer.Option(help="The core to measure on; the last one that may be used if left out.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Record all programs of the folder PROGRAM, twice at different times, into this folder,"
            " such as `data/xla_cpu`; an interrupted recording goes on."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="With --record: seconds of compiling and running a program in a pass.")
    ] = 20.0,
    rounds: Annotated[
        int, typer.Option(help="With --record: passes that add configs, each followed by one that repeats.")
    ] = 2,
    work: Annotated[
        Path, typer.Option(help="With --record: folder of executables and single results.")
    ] = Path("out/xla_cpu"),
    machine: Annotated[
        str, typer.Option(help="With --record: name of this machine; its processor's if left out.")
    ] = "",
    remarks: Annotated[
        str, typer.Option(help="With --record: remarks for the card, such as what ran beside.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Run a program on this processor: XLA's own fusions against given ones, and the time of every kernel.

    Results are compared with those of the unfused program on the same inputs. Needs JAX, which the extra
    `jax` has.

    Examples:

    `costbench measure step.hlo.pb --profile`

    `costbench measure data/xla_cpu/programs --record data/xla_cpu --remarks "nothing ran beside"`
    """
    if record is not None:
        refuse_given(context, ("fusions", "profile", "as_json"), "with --record")
        _record(program, record, work, core, seconds, rounds, machine or None, remarks)
        return
    refuse_given(context, ("seconds", "rounds", "work", "machine", "remarks"), "without --record")
    from costbench.hardware.xla_cpu.backend import Backend
    from costbench.hardware.xla_cpu.device import ProgramRunner
    from costbench.hardware.xla_cpu.reading import machine_program, read_program_proto

    prepared = machine_program(read_program_proto(program), program, program_stem(program))
    config = prepared.space.default if fusions is None else _read_fusions(fusions, prepared)
    runner = ProgramRunner(prepared, Backend(core=core))
    compiled = {
        "XLA's own": runner.own_default,
        "given" if fusions else "costbench's": runner.compile(config),
    }
    for name, which in compiled.items():
        runner.check(which, name)
    measured = dict(zip(compiled, _measure(runner, list(compiled.values())), strict=True))
    if as_json:
        content = {name: _facts(compiled[name], runs) for name, runs in measured.items()}
        typer.echo(json.dumps({"program": prepared.name, "configs": content}, indent=1, sort_keys=True))
        return
    _print_programs(runner, compiled, measured)
    if profile:
        for name, runs in measured.items():
            _print_kernels(name, compiled[name], runs)


def _measure(runner: ProgramRunner, configs: list[CompiledConfig]) -> list[ConfigRuns]:
    """Times configs in a process that compiles nothing, or in this one where XLA cannot keep executables."""
    from costbench.errors import HloError

    try:
        return runner.measure_apart(configs)
    except HloError as error:
        typer.echo(f"costbench: timed where it was compiled, so kernels may be slower: {error}", err=True)
        return runner.measure(configs)


def _record(
    programs: Path,
    folder: Path,
    work: Path,
    core: int | None,
    seconds: float,
    rounds: int,
    machine: str | None,
    remarks: str,
) -> None:
    from costbench.datasets.machine_recording import (
        RecordSpec,
        check_machine_name,
        default_machine_name,
        record,
        write_records,
    )

    name = machine or default_machine_name()
    check_machine_name(folder, name)

    def show(program: str, number: int, outcome: str) -> None:
        console().print(f"pass {number + 1}: {program}: {outcome}", highlight=False)

    record(programs, work, RecordSpec((seconds, 0.0) * rounds, core), show)
    card = write_records(work, programs, folder, name, remarks)
    typer.echo(
        f"{folder / name}: {card['distinct_kernels']:,} kernels of {card['programs']} programs,"
        f" {card['applications']} applications; {len(card['left_out'])} left out, see card.json"
    )


def _read_fusions(path: Path, program: MachineProgram) -> I16:
    """Returns the config in a file.

    Raises:
        DataError: for a file of another form or program.
    """
    import numpy as np

    from costbench.artifacts import read_json
    from costbench.errors import DataError

    content: Any = read_json(path)
    default = program.space.default
    if isinstance(content, dict) and isinstance(content.get("fused"), list):
        bits = content["fused"]
        if len(bits) != len(default) or any(bit not in (0, 1) for bit in bits):
            expected = f"{len(default)} numbers, 0 or 1: the edges of {program.name}"
            raise DataError(f"{len(bits)} entries", where=path, field="fused", expected=expected)
        return np.array(bits, dtype=np.int16)
    if not isinstance(content, dict) or not isinstance(content.get("fusions"), list):
        raise DataError("no fusions", where=path, expected="an object with a key `fused` or `fusions`")
    return program.config_of([_names(group, path) for group in content["fusions"]], path)


def _names(group: Any, path: Path) -> list[str]:
    from costbench.errors import DataError

    if not isinstance(group, list) or not all(isinstance(name, str) for name in group):
        raise DataError(f"{group!r}", where=path, field="fusions", expected="lists of names of instructions")
    return group


def _facts(config: CompiledConfig, runs: ConfigRuns) -> dict[str, Any]:
    import numpy as np

    kernels = [
        {
            "fingerprint": row.fingerprint.hex(),
            "kernel": row.name,
            "instructions": row.instructions,
            "runs": row.runs,
            "runtime_ns": row.runtime_ns,
            "spread": row.spread,
            "share": row.share,
        }
        for row in config.rows(runs)
    ]
    median = float(np.median(runs.wall_ns))
    return {
        "runtime_ns": runs.runtime_ns,
        "median_ns": median,
        "cpu_share": runs.cpu_share,
        "outside_ns": runs.outside_ns,
        "kernels": kernels,
    }


def _print_programs(
    runner: ProgramRunner, compiled: dict[str, CompiledConfig], measured: dict[str, ConfigRuns]
) -> None:
    import numpy as np

    headers = ("fusions", "kernels", "distinct", "fastest run", "median", "speed-up", "CPU share")
    default_ns = float(np.median(next(iter(measured.values())).wall_ns))
    rows = []
    for name, runs in measured.items():
        names = compiled[name].placed.fingerprints
        median = float(np.median(runs.wall_ns))
        times = [f"{ns / _NS_PER_MS:.3f} ms" for ns in (runs.runtime_ns, median)]
        ratios = f"{default_ns / median:.3f}", f"{runs.cpu_share:.2f}"
        rows.append([name, str(len(names)), str(len(set(names))), *times, *ratios])
    print_table(headers, rows, title=f"{runner.program.name} on this processor, one core")


def _print_kernels(name: str, config: CompiledConfig, runs: ConfigRuns) -> None:
    kernels = config.rows(runs)
    rows = [
        [
            row.name,
            str(row.instructions),
            str(row.runs),
            f"{row.runtime_ns / _NS_PER_US:.1f} µs",
            f"{100 * row.spread:.0f}%",
            f"{100 * row.share:.1f}%",
        ]
        for row in kernels[:_LISTED]
    ]
    if len(kernels) > _LISTED:
        share = sum(row.share for row in kernels[_LISTED:])
        rows.append([f"{len(kernels) - _LISTED} more", "", "", "", "", f"{100 * share:.1f}%"])
    headers = ("kernel", "instructions", "runs", "fastest", "spread", "share")
    print_table(headers, rows, title=f"Kernels, {name} fusions", whole=("kernel",))
