"""Turns a recording of programs into the folder that a repository keeps: estimates instead of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_file, seal, write_json
from costbench.errors import DataError
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.crop.simple_estimates import (
    executed_lanes,
    instruction_count,
    roofline_ns,
    throughput_ns,
)
from costbench_schedules.devices.processor import Processor, load_processor
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.llvm.operations import KINDS
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.records.agreement import compare
from costbench_schedules.records.card import CARD
from costbench_schedules.records.programs import (
    CURVES,
    CURVES_FOLDER,
    PROGRAMS,
    SAMPLED,
    SLOW,
    SUFFIX,
    DrawnPrograms,
    EstimatedPrograms,
    read_programs,
    write_estimated,
    write_programs,
)

OTHERS = ("intel_xeon_gold_5220r", "amd_epyc_7763")
"""Descriptions of other processors, whose estimates say what the right description is worth."""
_NUMBERS = ("number", "searched", "native_ns", "generic_ns", "again_ns")


class ProgramEstimates:
    """Estimates of programs on one processor, and totals on others.

    Args:
        processor: processor that programs were measured on.
    """

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self._estimator = Estimator(processor)
        self._others = {name: Estimator(load_processor(name)) for name in OTHERS}

    def of(self, features: ProgramFeatures) -> dict[str, float]:
        """Returns estimates by name: times in nanoseconds, but for the number of instructions.

        `total` and its parts `compute`, `L2`, and so on, `RAM`, `branches`; `throughput`, `roofline` and
        `instructions` as in `crop.simple_estimates`; `total@NAME` on other processors.
        """
        parts = self._estimator.breakdown(features)
        estimates = {"total": self._estimator.runtime_ns(features), "compute": parts.compute, **parts.memory}
        estimates["branches"] = parts.branches
        estimates["throughput"] = throughput_ns(features, self._processor)
        estimates["roofline"] = roofline_ns(features, self._processor)
        estimates["instructions"] = instruction_count(features)
        others = {f"total@{name}": estimator.runtime_ns(features) for name, estimator in self._others.items()}
        return estimates | others


def estimate_folder(recorded: Path, out: Path, processor: Processor, remarks: str = "") -> EstimatedPrograms:
    """Writes `programs.arrow`, `sampled.arrow` and `card.json` from the recordings in a folder.

    Args:
        recorded: folder of `record-networks`; operators that are not complete yet are taken as they are.
        out: folder that is written.
        processor: processor that programs were measured on.
        remarks: remarks on the recording, for its users.

    Raises:
        DataError: if a recording is damaged or of another processor than the others, or nothing is analysed.
    """
    tables = _tables(recorded)
    if not any(content for table in tables for content in table.features):
        expected = f"files *{SUFFIX} of record-networks, with features"
        raise DataError("no analysed programs", where=recorded, expected=expected)
    processors = sorted({_processor_of(table) for table in tables})
    if len(processors) > 1:
        raise DataError("programs of " + "; ".join(processors), where=recorded, expected="one processor")
    estimates = ProgramEstimates(processor)
    estimated = _joined(tables, estimates)
    write_estimated(out / PROGRAMS, estimated)
    write_programs(out / SAMPLED, _sampled(tables))
    files = [PROGRAMS, SAMPLED]
    curves = _tables(recorded / CURVES_FOLDER)
    if curves:
        write_estimated(out / CURVES, _joined(curves, estimates))
        files.append(CURVES)
    card = _card(tables, estimated, processor, remarks)
    write_json(out / CARD, card | {"sha256": {name: digest_file(out / name) for name in files}})
    seal(out, "`git checkout`, or `costbench estimate-networks`")
    return estimated


def _tables(folder: Path) -> list[DrawnPrograms]:
    """Returns the recordings in a folder, those of the operators with fewest operations first."""
    paths = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.name[0] != ".")
    return sorted(
        (read_programs(path) for path in paths),
        key=lambda programs: (programs.operator.flops, programs.operator.text),
    )


def _processor_of(table: DrawnPrograms) -> str:
    """Returns the processor that programs were measured on, whatever one they were analysed on."""
    machine = table.facts["draw"].get("measured_on", table.facts["host"])
    return str(machine.get("processor", "unknown"))


def _joined(tables: Iterable[DrawnPrograms], estimates: ProgramEstimates) -> EstimatedPrograms:
    all_tables = list(tables)
    rows = [_rows(table, estimates) for table in all_tables]
    names = list(next(iter(values for part in rows for values in part if values), {}))
    columns = {name: np.concatenate([table.columns[name] for table in all_tables]) for name in _NUMBERS}
    columns["operator"] = np.repeat(np.arange(len(all_tables)), [len(table) for table in all_tables])
    flat = [values for part in rows for values in part]
    columns["analysed"] = np.array([bool(values) for values in flat])
    columns["lanes"] = np.array(
        [[values.get(f"lanes {kind}", 0.0) for kind in KINDS] for values in flat], dtype=np.float64
    )
    by_name = {
        name: np.array([values.get(name, 0.0) for values in flat], dtype=np.float64)
        for name in names
        if not name.startswith("lanes ")
    }
    return EstimatedPrograms(tuple(table.operator for table in all_tables), columns, by_name)


def _rows(table: DrawnPrograms, estimates: ProgramEstimates) -> list[Mapping[str, float]]:
    """Returns estimates and executed lanes of each program; nothing for one without features."""
    rows: list[Mapping[str, float]] = []
    for content in table.features:
        if not content:
            rows.append({})
            continue
        features = ProgramFeatures.from_bytes(content, workload_name(table.operator))
        lanes = executed_lanes(features)
        rows.append(
            estimates.of(features)
            | {f"lanes {kind}": float(value) for kind, value in zip(KINDS, lanes, strict=True)}
        )
    return rows


def _sampled(tables: Iterable[DrawnPrograms]) -> DrawnPrograms:
    """Returns the analysed program with the shortest features of each operator, whose names are facts."""
    samples: list[DrawnPrograms] = []
    for table in tables:
        analysed = [index for index, content in enumerate(table.features) if content]
        if analysed:
            index = min(analysed, key=lambda number: (len(table.features[number]), number))
            columns = {name: column[index : index + 1] for name, column in table.columns.items()}
            samples.append(replace(table, columns=columns, problems=("",), features=(table.features[index],)))
    joined = replace(samples[0], facts={"operators": [sample.operator.text for sample in samples]})
    for sample in samples[1:]:
        joined = joined.extended(sample)
    return joined


def _card(
    tables: list[DrawnPrograms], estimated: EstimatedPrograms, processor: Processor, remarks: str
) -> dict[str, object]:
    problems: dict[str, int] = {}
    for table in tables:
        for text in table.problems:
            kind = text.partition(":")[0]
            if kind:
                problems[kind] = problems.get(kind, 0) + 1
    first, again = estimated.columns["native_ns"], estimated.columns["again_ns"]
    both = (first > 0) & (again > 0)
    agreements = [_agreement(table) for table in tables if table.columns["again_ns"].any()]
    return {
        "remarks": remarks,
        "host": tables[0].facts["host"],
        "draw": tables[0].facts["draw"],
        "processor": processor.name,
        "operators": len(tables),
        "programs": len(estimated),
        "analysed": int(estimated.columns["analysed"].sum()),
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
