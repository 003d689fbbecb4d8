"""Records runtimes of this machine: a session for each program, pass by pass; then the tables of them.

Passes alternate: one adds configs to every program and measures them, the next measures them a second time,
which is why the two measurements of a kernel lie many minutes apart. A recording that is killed loses the
configs that one program was adding; the next one goes on with the pass that it was in. The state (executables
of this machine) lies in a work folder, the tables are written from what has both measurements.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from costbench.artifacts import read_bytes, read_json, seal, unseal, write_bytes, write_json
from costbench.datasets.machine_records import (
    CARD,
    CONFIG_COLUMNS,
    CONFIGS,
    KERNEL_COLUMNS,
    KERNELS,
    MACHINE,
    PROGRAMS,
    VERSION,
    write_table,
)
from costbench.errors import DataError
from costbench.hardware.xla_cpu.acceptance import MAX_RUN_S, tolerance_of
from costbench.hardware.xla_cpu.backend import (
    DISABLED_PASSES,
    GIVEN_FLAGS,
    OWN_FLAGS,
    core_to_use,
    require_jax,
)
from costbench.hardware.xla_cpu.session import (
    DEFAULT,
    EXIT_LEFT_OUT,
    FIRST,
    LEFT_OUT,
    OWN,
    SECOND,
    KeptConfig,
    KeptRound,
    kept_configs,
    kept_round,
)
from costbench.hlo.reader import read_module
from costbench.metrics.ranking import kendall_tau
from costbench.programs.manifest import ProgramEntry, load_manifest, save_manifest, toolchain_of

_TIMEOUT_S = 420
_PASSES = "passes"
LONG_NS = 20_000
"""Runtime from which on agreement is stated, beside that of all kernels."""


@dataclass(frozen=True)
class RecordSpec:
    """What is recorded.

    Attributes:
        seconds: for every pass, the seconds a program may take to compile and run further configs; 0 for a
            pass that only measures again.
        core: number of the core that is measured on; None for the last that the process may use.
    """

    seconds: tuple[float, ...] = (20.0, 0.0, 20.0, 0.0)
    core: int | None = None


def record(programs: Path, work: Path, spec: RecordSpec, on_program: Callable[[str, int, str], None]) -> None:
    """Measures the programs of a folder until all passes are done.

    Args:
        programs: folder with a manifest.
        work: folder of the state.
        spec: passes.
        on_program: function that is called after every session with program, number of the pass and outcome.

    Raises:
        DataError: if the manifest cannot be read, or JAX is not installed.
    """
    require_jax()
    core = core_to_use(spec.core)
    entries = load_manifest(programs)
    for number, seconds in enumerate(spec.seconds):
        for entry in entries:
            folder = work / entry.name
            if (folder / LEFT_OUT).exists() or _passes(folder) > number:
                continue
            path, outcome = programs / entry.file, ""
            if seconds:
                outcome = _run_session(path, folder, seconds, core)
            if not (folder / LEFT_OUT).exists():
                outcome = f"{outcome} {_run_session(path, folder, 0.0, core)}".strip()
            write_bytes(folder / _PASSES, str(number + 1).encode())
            on_program(entry.name, number, outcome)


def _passes(folder: Path) -> int:
    path = folder / _PASSES
    return int(read_bytes(path)) if path.exists() else 0


def _run_session(path: Path, folder: Path, seconds: float, core: int | None) -> str:
    """Runs a session in a process of its own, which may crash or hang; returns what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "costbench.hardware.xla_cpu.session", str(path), str(folder)]
    command += [str(seconds), *([] if core is None else [str(core)])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"ended after {_TIMEOUT_S} s"
    if done.returncode == EXIT_LEFT_OUT:
        return f"left out: {_reason(folder)}"
    if done.returncode:
        return f"failed: {(done.stderr.strip().splitlines() or [str(done.returncode)])[-1]}"
    return done.stdout.strip()


def _reason(folder: Path) -> str:
    content: Any = read_json(folder / LEFT_OUT)
    return str(content["reason"])


# ---- tables ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Rounds:
    """A config with the results of both rounds."""

    config: KeptConfig
    first: KeptRound
    second: KeptRound


def write_records(
    work: Path, programs: Path, folder: Path, machine: str, remarks: str = ""
) -> dict[str, Any]:
    """Writes the tables of what was measured twice, and the programs; returns the card.

    Configs whose results differ from the unfused program's by more than `tolerance_of` the program are left
    out and counted.

    Args:
        work: folder of the state.
        programs: folder of the programs that were measured.
        folder: folder of the records of all machines.
        machine: name of this machine's folder in it.
        remarks: remarks for users, such as what ran beside.

    Raises:
        DataError: if nothing has both measurements, a file cannot be read or written, or records of another
            processor have that name.
    """
    check_machine_name(folder, machine)
    kernels: list[dict[str, Any]] = []
    configs: list[dict[str, Any]] = []
    measured: list[ProgramEntry] = []
    left_out: dict[str, str] = {}
    wrong = 0
    for entry in load_manifest(programs):
        state = work / entry.name
        if (state / LEFT_OUT).exists():
            left_out[entry.name] = _reason(state)
            continue
        rounds = list(_rounds(state))
        tolerance = tolerance_of(read_module(programs / entry.file)) if rounds else 0.0
        right = [r for r in rounds if r.config.difference <= tolerance]
        wrong += len(rounds) - len(right)
        rows = list(_kernel_rows(entry, right))
        if not rows:
            left_out[entry.name] = "no kernel was measured twice"
            continue
        measured.append(entry)
        kernels += rows
        configs += _config_rows(entry, right)
    if not kernels:
        raise DataError(
            "nothing was measured twice", where=work, expected="a recording with two passes or more"
        )
    _write_programs(programs, folder / PROGRAMS, measured)
    target = folder / machine
    write_table(target / KERNELS, kernels, KERNEL_COLUMNS)
    write_table(target / CONFIGS, configs, CONFIG_COLUMNS)
    write_json(target / MACHINE, machine_facts())
    card = records_card(kernels, configs, left_out, wrong, remarks)
    write_json(target / CARD, card)
    seal(folder, "`git checkout`, or `costbench measure --record`")
    return card


def _rounds(state: Path) -> Iterator[_Rounds]:
    for config in kept_configs(state):
        first, second = (kept_round(state, config.config, number) for number in (FIRST, SECOND))
        if first is not None and second is not None:
            yield _Rounds(config, first, second)


def _write_programs(source: Path, folder: Path, entries: Sequence[ProgramEntry]) -> None:
    """Copies programs, beside those that other machines have records of."""
    unseal(folder.parent)
    existing = load_manifest(folder) if (folder / "manifest.json").exists() else ()
    for entry in entries:
        write_bytes(folder / entry.file, read_bytes(source / entry.file))
    names = {entry.name for entry in entries}
    kept = [entry for entry in existing if entry.name not in names]
    save_manifest(folder, [*kept, *entries], toolchain_of(source))


def _timed(prefix: str, values: Sequence[float], cpu_share: float) -> dict[str, Any]:
    return {
        f"{prefix}_ns": max(1, round(min(values))),
        f"{prefix}_median_ns": max(1, round(float(np.median(values)))),
        f"{prefix}_repeats": len(values),
        f"{prefix}_cpu": cpu_share,
    }


def _kernel_rows(entry: ProgramEntry, rounds: Sequence[_Rounds]) -> Iterator[dict[str, Any]]:
    """Yields the kernels of a program, each from the first config that has it."""
    default_runs: dict[str, int] = {}
    for r in rounds:
        if r.config.origin == DEFAULT:
            default_runs = _runs(r.config)
    seen: set[str] = set()
    for r in rounds:
        for name, kernel in zip(r.config.fingerprints, r.config.kernels, strict=True):
            if name in seen or name not in r.first.kernel_ns or name not in r.second.kernel_ns:
                continue
            seen.add(name)
            computation, inputs, instructions, outputs, _ = kernel
            yield {
                "program": entry.name,
                "application": entry.application,
                "fingerprint": bytes.fromhex(name),
                "computation": computation,
                "inputs": inputs,
                "instructions": instructions,
                "outputs": outputs,
                "config": r.config.config,
                "places": r.config.fingerprints.count(name),
                "default_runs": default_runs.get(name, 0),
                "operations": r.first.operations[name],
                **_timed("first", r.first.kernel_ns[name], r.first.cpu_share),
                **_timed("second", r.second.kernel_ns[name], r.second.cpu_share),
            }


def _config_rows(entry: ProgramEntry, rounds: Sequence[_Rounds]) -> Iterator[dict[str, Any]]:
    for r in rounds:
        runs = _runs(r.config)
        yield {
            "program": entry.name,
            "application": entry.application,
            "config": r.config.config,
            "origin": r.config.origin,
            "fused": [int(digit) for digit in r.config.fused],
            "fingerprints": [bytes.fromhex(name) for name in runs],
            "runs": list(runs.values()),
            "compile_seconds": r.config.compile_seconds,
            "outside_ns": round(r.first.outside_ns),
            **_timed("first", r.first.wall_ns, r.first.cpu_share),
            **_timed("second", r.second.wall_ns, r.second.cpu_share),
        }


def _runs(config: KeptConfig) -> dict[str, int]:
    """Returns how often the kernels of each fingerprint run in one run of the program."""
    runs: dict[str, int] = {}
    for name, kernel in zip(config.fingerprints, config.kernels, strict=True):
        runs[name] = runs.get(name, 0) + int(kernel[4])
    return runs


# ---- description -----------------------------------------------------------------------------------------


def records_card(
    kernels: Sequence[Mapping[str, Any]],
    configs: Sequence[Mapping[str, Any]],
    left_out: Mapping[str, str],
    wrong: int,
    remarks: str,
) -> dict[str, Any]:
    """Returns what the card says of the records of a machine.

    Args:
        kernels: rows of the kernels.
        configs: rows of the configs.
        left_out: reasons by program that is left out.
        wrong: number of configs whose results differed.
        remarks: remarks for users.
    """
    origins = [row["origin"] for row in configs]
    return {
        "remarks": remarks,
        "kernels": len(kernels),
        "distinct_kernels": len({row["fingerprint"] for row in kernels}),
        "programs": len({row["program"] for row in configs}),
        "applications": len({row["application"] for row in configs}),
        "configs": {origin: origins.count(origin) for origin in sorted(set(origins))},
        "configs_with_other_results": wrong,
        "left_out": dict(sorted(left_out.items())),
        "agreement": {
            "kernels": _agreement(kernels, 0),
            "kernels_from_20_us": _agreement(kernels, LONG_NS),
            "programs": _agreement(configs, 0),
        },
        "default_over_xla": _default_over_own(configs),
    }


def _agreement(rows: Sequence[Mapping[str, Any]], least_ns: int) -> dict[str, Any]:
    """Returns how far second measurements agree: of the fastest runs, and of the medians."""
    chosen = [row for row in rows if row["first_median_ns"] >= least_ns]
    facts: dict[str, Any] = {"rows": len(chosen)}
    for name, column in (("fastest", "ns"), ("median", "median_ns")):
        first, second = (
            np.array([row[f"{number}_{column}"] for row in chosen], dtype=np.float64)
            for number in (FIRST, SECOND)
        )
        if len(chosen) < 2:
            continue
        difference = np.abs(second / first - 1.0)
        facts[name] = {
            "tau": round(float(kendall_tau(first, second)), 4),
            "mape": round(100.0 * float(difference.mean()), 2),
            "median_difference": round(float(np.median(difference)), 4),
        }
    return facts


def _default_over_own(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the geometric mean, over programs, of XLA's own runtime over that of costbench's default."""
    by_program: dict[str, dict[str, int]] = {}
    for row in configs:
        if row["origin"] in (OWN, DEFAULT):
            by_program.setdefault(row["program"], {})[row["origin"]] = row["second_median_ns"]
    ratios = [times[OWN] / times[DEFAULT] for times in by_program.values() if len(times) == 2]
    gain = float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0
    return {"programs": len(ratios), "geometric_mean_gain": round(gain, 4)}


def machine_facts() -> dict[str, Any]:
    """Returns the description of this machine and of how is measured, as `machine.json` has it."""
    return {
        "version": VERSION,
        "chip": "xla_cpu",
        "processor": processor_name(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "libraries": {name: metadata.version(name) for name in ("jax", "jaxlib")},
        "flags": {"own_default": OWN_FLAGS, "given_fusions": GIVEN_FLAGS},
        "disabled_passes": DISABLED_PASSES,
        "threads": 1,
        "max_run_seconds": MAX_RUN_S,
        "tolerance": "0.001 of the norm of a result, 0.05 in programs with 16-bit floats",
        "memory": "freed memory stays with the process",
        "state_of_caches": "in the whole program, as the kernels before left them",
        "kernel_runtime": "mean over the places of a kernel, then minimum and median over traced runs",
    }


def recorded_processor(folder: Path) -> str:
    """Returns the processor that the records in the folder of a machine are of.

    Raises:
        DataError: if its description is missing or damaged.
    """
    path = folder / MACHINE
    facts: Any = read_json(path)
    if not isinstance(facts, dict) or not isinstance(facts.get("processor"), str):
        raise DataError("is no description of a machine", where=path, field="processor", expected="its name")
    return str(facts["processor"])


def check_machine_name(folder: Path, machine: str) -> None:
    """Checks that records of this processor may be written under a name.

    Args:
        folder: folder of the records of all machines.
        machine: name of this machine's folder in it.

    Raises:
        DataError: for a name that is none of a folder, or one under which another processor's records are.
    """
    if not re.fullmatch(r"\w[\w.-]*", machine) or machine == PROGRAMS:
        expected = f"letters, digits, _, - and dots, other than {PROGRAMS}"
        raise DataError(f"{machine!r} is no name of a machine", field="--machine", expected=expected)
    if (folder / machine / MACHINE).exists():
        there, here = recorded_processor(folder / machine), processor_name()
        if there != here:
            problem = f"has records of another machine, {there}"
            expected = f"another --machine for {here}"
            raise DataError(problem, where=folder / machine, field="--machine", expected=expected)


def processor_name() -> str:
    """Returns vendor, family, model and stepping of the processor, or what the platform calls it."""
    try:
        lines = read_bytes("/proc/cpuinfo").decode("utf-8", errors="replace").splitlines()
    except DataError:
        return platform.processor() or platform.machine()
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    return f"{name}, cpu family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"


def default_machine_name() -> str:
    """Returns a name for the folder of this machine's records: the processor's, lower case."""
    letters = (c if c.isalnum() else "_" for c in processor_name().lower())
    return "_".join(filter(None, "".join(letters).split("_")))
