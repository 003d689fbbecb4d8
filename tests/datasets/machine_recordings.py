"""Records of a machine that tests make themselves: runtimes by a formula, two rounds that differ by noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from costbench import rng
from costbench.arrays import F64
from costbench.artifacts import digest_bytes, write_bytes, write_json
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import PreparedProgram
from costbench.datasets.fusion_generation import count_executions
from costbench.datasets.machine_records import (
    CONFIG_COLUMNS,
    CONFIGS,
    DEFAULT,
    KERNEL_COLUMNS,
    KERNELS,
    MACHINE,
    PROGRAMS,
    RANDOM,
    VERSION,
    write_table,
)
from costbench.features.decision_features import static_performance
from costbench.hardware.xla_cpu.program import row_major
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import module_from_bytes
from costbench.programs.manifest import ProgramEntry, load_manifest, read_program_bytes, save_manifest

LAUNCH_NS, FLOP_NS, BYTE_NS, TRANSCENDENTAL_NS = 2000.0, 0.02, 0.1, 1.0
"""Constants of the machine, which is a roofline of its own."""
NOISE = 0.03


def machine_ns(static: F64) -> float:
    """Returns the runtime of a kernel of some static features, [4], without noise."""
    flops, read, written, transcendentals = static
    return LAUNCH_NS + max(FLOP_NS * flops + TRANSCENDENTAL_NS * transcendentals, BYTE_NS * (read + written))


def write_records(
    folder: Path, corpus: Path, names: Sequence[str], configs: int = 4, machine: str = "toy"
) -> Path:
    """Writes records of programs of the corpus to `folder`, and returns the machine's folder."""
    entries = {entry.name: entry for entry in load_manifest(corpus)}
    kernels: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    programs: list[ProgramEntry] = []
    for name in names:
        entry = entries[name]
        module = inline_fusions(module_from_bytes(read_program_bytes(corpus, entry), where=name))
        prepared = PreparedProgram(module, name, lay_out=row_major)
        data = module_to_bytes(prepared.module)
        path = f"{name}.hlo.pb"
        write_bytes(folder / PROGRAMS / path, data)
        programs.append(replace(entry, file=path, sha256=digest_bytes(data)))
        of_program = _record(prepared, entry, configs)
        kernels += of_program[0]
        runs += of_program[1]
    save_manifest(folder / PROGRAMS, programs, {})
    write_table(folder / machine / KERNELS, kernels, KERNEL_COLUMNS)
    write_table(folder / machine / CONFIGS, runs, CONFIG_COLUMNS)
    write_json(folder / machine / MACHINE, {"version": VERSION, "name": machine})
    return folder / machine


def _record(
    program: PreparedProgram, entry: ProgramEntry, configs: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    space, draw = FusionSpace(program), rng.stream(0, "recordings", entry.name)
    named = {"program": entry.name, "application": entry.application}
    kernels: dict[str, dict[str, Any]] = {}
    rows = []
    for number in range(configs):
        config = space.sample(draw, 1)[0] if number else space.default
        cuts = space.cut(config)
        by_hash = count_executions(cuts)
        executions: Counter[str] = Counter()
        for cut in cuts:
            names = space.fingerprints.kernels(cut.computation, cut.arrays)
            for index, (name, quick) in enumerate(zip(names, cut.hashes.tolist(), strict=True)):
                fingerprint = name.hex()
                executions[fingerprint] = by_hash[quick]
                if fingerprint not in kernels:
                    kernel = space.kernel(cut, index)
                    kernels[fingerprint] = {**named, **_kernel_row(kernel, number, draw)}
                    kernels[fingerprint]["default_runs"] = 0 if number else by_hash[quick]
        total = sum(count * kernels[name]["noiseless"] for name, count in executions.items())
        rows.append(
            {
                **named,
                "config": number,
                "origin": RANDOM if number else DEFAULT,
                "fused": [int(value) for value in config],
                "fingerprints": [bytes.fromhex(name) for name in executions],
                "runs": list(executions.values()),
                "compile_seconds": 0.5,
                "outside_ns": 0,
                **_times(total, draw),
            }
        )
    for row in kernels.values():
        del row["noiseless"]
    return list(kernels.values()), rows


def _kernel_row(kernel: Kernel, number: int, draw: np.random.Generator) -> dict[str, Any]:
    noiseless = machine_ns(static_performance(kernel).astype(np.float64))
    return {
        "fingerprint": bytes.fromhex(kernel.fingerprint),
        "computation": kernel.computation,
        "inputs": list(kernel.inputs),
        "instructions": list(kernel.instructions),
        "outputs": list(kernel.outputs),
        "config": number,
        "places": 1,
        "operations": 1,
        "noiseless": noiseless,
        **_times(noiseless, draw),
    }


def _times(noiseless: float, draw: np.random.Generator) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("first", "second"):
        runtime = max(1, round(noiseless * (1.0 + NOISE * abs(float(draw.normal())))))
        values |= {f"{name}_ns": runtime, f"{name}_median_ns": runtime}
        values |= {f"{name}_repeats": 5, f"{name}_cpu": 1.0}
    return values
