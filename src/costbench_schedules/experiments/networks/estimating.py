"""Turns a recording of programs into the folder that a repository keeps: estimates instead of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_file, read_json, write_json
from costbench.errors import DataError
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.crop.plain import executed_lanes, instruction_count, roofline_ns, throughput_ns
from costbench_schedules.devices.processor import Processor, load_processor
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.records.agreement import compare
from costbench_schedules.records.networks.drawn import (
    CURVES_FOLDER,
    SLOW,
    SUFFIX,
    DrawnPrograms,
    read_programs,
    write_programs,
)
from costbench_schedules.records.networks.estimated import (
    CARD,
    CURVES,
    PROGRAMS,
    SAMPLED,
    EstimatedPrograms,
    write_estimated,
)

OTHERS = ("intel_xeon_gold_5220r", "amd_epyc_7763")
"""Descriptions of other processors, whose estimates say what the right description is worth."""
_NUMBERS = ("number", "searched", "native_ns", "generic_ns", "again_ns")


class ProgramEstimates:
    """Estimates of programs on one processor, and totals on others.

    Args:
        processor: that programs were measured on.
    """

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._own = Estimator(processor)
        self._others = {name: Estimator(load_processor(name)) for name in OTHERS}

    def of(self, features: ProgramFeatures) -> dict[str, float]:
        """Returns estimates by name: times in nanoseconds, but for the number of instructions.

        `total` and its parts `compute`, `L2`, and so on, `RAM`, `branches`; `throughput`, `roofline` and
        `instructions` as in `models.crop.plain`; `total@NAME` on other processors.
        """
        parts = self._own.breakdown(features)
        found = {"total": self._own.runtime_ns(features), "compute": parts.compute, **parts.memory}
        found["branches"] = parts.branches
        found["throughput"] = throughput_ns(features, self._processor)
        found["roofline"] = roofline_ns(features, self._processor)
        found["instructions"] = instruction_count(features)
        others = {f"total@{name}": one.runtime_ns(features) for name, one in self._others.items()}
        return found | others


def estimate_folder(recorded: Path, out: Path, processor: Processor, remarks: str = "") -> EstimatedPrograms:
    """Writes `programs.arrow`, `sampled.arrow` and `card.json` from the recordings in a folder.

    Args:
        recorded: folder of `record-networks`; operators that are not complete yet are taken as they are.
        out: folder that is written.
        processor: that programs were measured on.
        remarks: what users should know of the recording.

    Raises:
        DataError: if a recording is damaged, or there is none.
    """
    tables = _tables(recorded)
    if not tables:
        raise DataError("no recordings", where=recorded, expected=f"files *{SUFFIX} of record-networks")
    estimates = ProgramEstimates(processor)
    found = _joined(tables, estimates)
    write_estimated(out / PROGRAMS, found)
    write_programs(out / SAMPLED, _sampled(tables))
    files = [PROGRAMS, SAMPLED]
    curves = _tables(recorded / CURVES_FOLDER)
    if curves:
        write_estimated(out / CURVES, _joined(curves, estimates))
        files.append(CURVES)
    card = _card(tables, found, processor, remarks)
    write_json(out / CARD, card | {"sha256": {name: digest_file(out / name) for name in files}})
    return found


def _tables(folder: Path) -> list[DrawnPrograms]:
    """Returns the recordings in a folder, those of the operators with fewest operations first."""
    paths = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.name[0] != ".")
    return sorted(
        (read_programs(path) for path in paths), key=lambda one: (one.operator.flops, one.operator.text)
    )


def check_folder(folder: Path) -> None:
    """Compares the files of a folder with the digests in its card.

    Raises:
        DataError: naming the file that is missing or differs.
    """
    card = read_json(folder / CARD)
    digests = card.get("sha256") if isinstance(card, dict) else None
    if not isinstance(digests, dict):
        raise DataError("is no card", where=folder / CARD, expected="a key `sha256`")
    for name, expected in sorted(digests.items()):
        if digest_file(folder / name) != expected:
            raise DataError("damaged", where=folder / name, expected=f"SHA-256 {expected}")


def _joined(tables: Iterable[DrawnPrograms], estimates: ProgramEstimates) -> EstimatedPrograms:
    several = list(tables)
    rows = [_rows(table, estimates) for table in several]
    names = list(next(iter(each for part in rows for each in part if each), {}))
    columns = {name: np.concatenate([table.columns[name] for table in several]) for name in _NUMBERS}
    columns["operator"] = np.repeat(np.arange(len(several)), [len(table) for table in several])
    flat = [each for part in rows for each in part]
    columns["analysed"] = np.array([bool(each) for each in flat])
    columns["lanes"] = np.array(
        [[each.get(f"lanes {kind}", 0.0) for kind in KINDS] for each in flat], dtype=np.float64
    )
    by_name = {
        name: np.array([each.get(name, 0.0) for each in flat], dtype=np.float64)
        for name in names
        if not name.startswith("lanes ")
    }
    return EstimatedPrograms(tuple(table.operator for table in several), columns, by_name)


def _rows(table: DrawnPrograms, estimates: ProgramEstimates) -> list[Mapping[str, float]]:
    """Returns estimates and executed lanes of each program; nothing for one without features."""
    found: list[Mapping[str, float]] = []
    for content in table.features:
        if not content:
            found.append({})
            continue
        features = ProgramFeatures.from_bytes(content, workload_name(table.operator))
        lanes = executed_lanes(features)
        found.append(
            estimates.of(features)
            | {f"lanes {kind}": float(value) for kind, value in zip(KINDS, lanes, strict=True)}
        )
    return found


def _sampled(tables: Iterable[DrawnPrograms]) -> DrawnPrograms:
    """Returns the analysed program with the shortest features of each operator, whose names are facts."""
    kept: list[DrawnPrograms] = []
    for table in tables:
        analysed = [place for place, each in enumerate(table.features) if each]
        if analysed:
            place = min(analysed, key=lambda one: (len(table.features[one]), one))
            columns = {name: column[place : place + 1] for name, column in table.columns.items()}
            kept.append(replace(table, columns=columns, problems=("",), features=(table.features[place],)))
    joined = replace(kept[0], facts={"operators": [one.operator.text for one in kept]})
    for one in kept[1:]:
        joined = joined.extended(one)
    return joined


def _card(
    tables: list[DrawnPrograms], found: EstimatedPrograms, processor: Processor, remarks: str
) -> dict[str, object]:
    problems: dict[str, int] = {}
    for table in tables:
        for text in table.problems:
            kind = text.partition(":")[0]
            if kind:
                problems[kind] = problems.get(kind, 0) + 1
    first, again = found.columns["native_ns"], found.columns["again_ns"]
    both = (first > 0) & (again > 0)
    agreements = [_agreement(table) for table in tables if table.columns["again_ns"].any()]
    return {
        "remarks": remarks,
        "host": tables[0].facts["host"],
        "draw": tables[0].facts["draw"],
        "processor": processor.name,
        "operators": len(tables),
        "programs": len(found),
        "analysed": int(found.columns["analysed"].sum()),
        "problems": problems,
        "slow": f"`{SLOW}` programs were measured, and left out of the analysis",
        "measured_again": {
            "programs": int(both.sum()),
            "median_tau_of_operators": float(np.median(agreements)) if agreements else None,
            "p90_ratio": compare(first[both], again[both]).p90_ratio if both.any() else None,
        },
    }


def _agreement(table: DrawnPrograms) -> float:
    first, again = table.columns["native_ns"], table.columns["again_ns"]
    both = (first > 0) & (again > 0)
    return compare(first[both], again[both]).tau or 0.0
