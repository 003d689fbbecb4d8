"""Tables of a made-up machine with estimates that are off by some noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from costbench.artifacts import digest_file, write_json
from costbench.rng import stream
from costbench_schedules.experiments.estimated_tuning import EstimatedTuning
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.records.card import CARD
from costbench_schedules.records.programs import PROGRAMS, EstimatedPrograms, write_estimated
from costbench_schedules.records.table import write_table
from costbench_schedules.search.guided import GuidedSpec
from tests.schedules.experiments.made_up_tables import made_up_table

LEFT_OUT = 3
"""One in this number of programs is not analysed."""
SECTION = EstimatedTuning(
    ("random", "crop", "trees", "hybrid", "draft-verify"),
    trials=24,
    repeats=2,
    draft=16,
    guided=GuidedSpec(batch=8),
    fewest=100,
)


def write_all(root: Path, noise: float = 0.1, slower: int = 1) -> Path:
    """Writes two tables and estimates of one of them below `data/schedules`; returns this folder."""
    folder = root / "data" / "schedules"
    table = made_up_table("matmul-256")
    write_table(folder / "native" / "matmul-256.arrow", table)
    write_table(folder / "native" / "C2.arrow", made_up_table("C2"))
    indices = stream(0, "order").permutation(np.flatnonzero(~table.failed))
    runtime = table.columns["runtime_ns"][indices] * slower
    total = runtime * np.exp(noise * stream(1, "noise").standard_normal(len(indices)))
    zeros = np.zeros(len(indices), dtype=np.int64)
    columns = {
        "operator": zeros,
        "number": np.array(table.unrestricted_numbers(indices)),
        "searched": zeros.astype(np.bool_),
        "native_ns": runtime,
        "generic_ns": zeros,
        "again_ns": zeros,
        "analysed": np.arange(len(indices)) % LEFT_OUT > 0,
        "lanes": np.ones((len(indices), len(KINDS))),
    }
    estimates = {"total": total, "compute": 0.5 * total, "L2": 0.5 * total, "roofline": 0.1 * total}
    programs = EstimatedPrograms((table.space.operator,), columns, estimates)
    write_estimated(folder / "estimates" / PROGRAMS, programs)
    digests = {PROGRAMS: digest_file(folder / "estimates" / PROGRAMS)}
    write_json(folder / "estimates" / CARD, {"sha256": digests})
    return folder
