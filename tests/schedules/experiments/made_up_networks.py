"""Programs of two small networks' operators with made-up runtimes and estimates."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.artifacts import digest_file, write_json
from costbench.rng import stream
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.networks import networks
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.card import CARD
from costbench_schedules.records.estimation import OTHERS
from costbench_schedules.records.programs import CURVES, PROGRAMS, EstimatedPrograms, write_estimated
from costbench_schedules.spaces.space import ScheduleSpace

NAMES = ("total", "compute", "L2", "L3", "RAM", "branches", "throughput", "roofline", "instructions")
PROGRAMS_EACH = 14


def programs(texts: tuple[str, ...], noise: float) -> EstimatedPrograms:
    """Runtimes fall with the vectorised tile; the estimate is off by some noise, times two."""
    columns: dict[str, list[float]] = {name: [] for name in ("operator", "number", "native", "generic")}
    for index, text in enumerate(texts):
        space = ScheduleSpace(parse_operator(text))
        draws = stream(3, "made-up programs", text)
        rows = space.sample(draws, PROGRAMS_EACH)
        runtime = 1e5 * np.exp((rows / space.sizes).mean(axis=1) * 3 + 0.01 * draws.random(len(rows)))
        columns["operator"] += [index] * len(rows)
        columns["number"] += space.numbers(rows)
        columns["native"] += runtime.tolist()
        columns["generic"] += (3 * runtime[::-1]).tolist()
    native = np.array(columns["native"])
    draws = stream(4, "made-up estimates")
    total = 2 * native * np.exp(noise * draws.standard_normal(len(native)))
    estimates = dict.fromkeys(NAMES, total / 4) | {"total": total}
    estimates |= {f"total@{name}": total * 1.5 for name in OTHERS}
    count = len(native)
    return EstimatedPrograms(
        tuple(parse_operator(text) for text in texts),
        {
            "operator": np.array(columns["operator"]),
            "number": np.array([int(one) for one in columns["number"]]),
            "searched": np.arange(count) % 2 == 1,
            "native_ns": native.astype(np.int64),
            "generic_ns": np.array(columns["generic"]).astype(np.int64),
            "again_ns": np.zeros(count, dtype=np.int64),
            "analysed": np.arange(count) % PROGRAMS_EACH > 1,
            "lanes": np.ones((count, len(KINDS))),
        },
        estimates,
    )


def write_folder(folder: Path, noise: float = 0.05) -> Path:
    """Writes what `estimate-networks` writes, without a sample of features."""
    texts = (*networks()["BERT-tiny"].executions, *networks()["BERT-base"].executions)
    write_estimated(folder / PROGRAMS, programs(texts, noise))
    write_estimated(folder / CURVES, programs(("matmul:m=8,n=64,k=16",), 0.0))
    digests = {name: digest_file(folder / name) for name in (PROGRAMS, CURVES)}
    write_json(folder / CARD, {"processor": "made up", "operators": 12, "analysed": 144, "sha256": digests})
    return folder
