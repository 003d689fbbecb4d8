"""The real backend, on a small program. It runs in processes of its own: a process reads XLA's flags once."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.datasets.machine_recording import RecordSpec, machine_facts, record, write_records
from costbench.datasets.machine_records import machines, open_records
from costbench.errors import DataError
from costbench.hardware.xla_cpu.session import FIRST, SECOND, kept_configs, kept_round
from costbench.programs.manifest import ProgramEntry, save_manifest
from tests.command_line import costbench, costbench_process, one_error
from tests.hardware.xla_cpu.programs import TEXT, small_program, write_small

pytest.importorskip("jaxlib", reason="needs the extra jax: XLA's backend for processors")

# Seconds that no machine needs: a small program ends a session by having no further kernels.
_PASSES = RecordSpec((30.0, 0.0))


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def measured_kernels() -> dict[str, Any]:
    from costbench.hardware.xla_cpu.backend import Backend
    from costbench.hardware.xla_cpu.device import XlaCpu

    program, device = small_program(), XlaCpu(Backend())
    kernels = program.kernels(program.space.default).kernels
    measured = device.measure(kernels)
    return {
        "runtime_ns": measured.runtime_ns.tolist(),
        "failed": measured.failed.tolist(),
        "seconds": measured.seconds,
        "costs": device.costs(kernels[:1]).tolist(),
        "none": len(device.measure([]).runtime_ns),
    }


def runner_facts() -> dict[str, Any]:
    from costbench.hardware.xla_cpu.backend import Backend
    from costbench.hardware.xla_cpu.device import ProgramRunner

    program = small_program()
    runner = ProgramRunner(program, Backend())
    configs = [runner.own_default, runner.compile(program.space.default)]
    runner.check(configs[1], "costbench's")
    own, default = runner.measure(configs)
    apart = runner.measure_apart(configs)
    names = [name.hex() for name in configs[1].placed.fingerprints]
    wrong = [np.asarray(output) * 1.01 for output in runner.reference]
    return {
        "own_ns": own.wall_ns,
        "default_ns": default.wall_ns,
        "apart": [
            sorted(name.hex() for name in runs.kernel_ns) == sorted(name.hex() for name in here.kernel_ns)
            and min(runs.wall_ns) > 0
            for runs, here in zip(apart, (own, default), strict=True)
        ],
        "timed": sorted(name.hex() for name in default.kernel_ns),
        "names": sorted(set(names)),
        "share": sum(row.share for row in configs[1].rows(default)),
        "difference": runner.difference(wrong),
    }


def test_kernels_by_themselves(process: ProcessPoolExecutor) -> None:
    facts = process.submit(measured_kernels).result()
    assert len(facts["runtime_ns"]) == 3
    assert not any(facts["failed"])
    # 131,072 exponentials take microseconds; 16 million multiply-adds no more than a second.
    assert all(1_000 < runtime < 1_000_000_000 for runtime in facts["runtime_ns"])
    assert 0.0 < facts["seconds"] < 300.0
    assert facts["costs"][0] > 1_000
    assert facts["none"] == 0


def test_a_program_with_xlas_fusions_and_with_others(process: ProcessPoolExecutor) -> None:
    facts = process.submit(runner_facts).result()
    assert min(facts["own_ns"]) > 10_000
    assert min(facts["default_ns"]) > 10_000
    assert facts["timed"] == facts["names"]
    assert facts["apart"] == [True, True]
    assert facts["share"] == pytest.approx(1.0)
    assert facts["difference"] == pytest.approx(0.01, rel=1e-3)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a recording: of a program, and of text, whose constants have no values."""
    folder = tmp_path_factory.mktemp("recording")
    path = write_small(folder)
    broken = folder / "broken.hlo.txt"
    broken.write_text(TEXT, "utf-8")
    entries = [entry("small", path), entry("broken", broken)]
    save_manifest(folder, entries, {})
    outcomes: list[tuple[str, int]] = []
    record(folder, folder / "work", _PASSES, lambda name, n, _: outcomes.append((name, n)))
    assert outcomes.count(("small", 0)) == outcomes.count(("small", 1)) == 1
    return folder


def entry(name: str, path: Path) -> ProgramEntry:
    return ProgramEntry(
        name=name, application=name.title(), builder="", step="infer", batch=1, dtype="f32", optimizer="",
        source="user", faithful="", reference="", instructions=0, sha256="", file=path.name,
    )  # fmt: skip


def test_every_config_is_measured_twice(recording: Path) -> None:
    state = recording / "work" / "small"
    configs = kept_configs(state)
    assert [config.origin for config in configs[:4]] == ["xla", "unfused", "costbench", "random"]
    for config in configs:
        first, second = (kept_round(state, config.config, number) for number in (FIRST, SECOND))
        assert first is not None
        assert second is not None
        assert first.started < second.started
        assert set(first.kernel_ns) == set(second.kernel_ns) <= set(config.fingerprints)
        assert config.difference < 1e-4


def test_what_is_recorded_is_not_measured_again(recording: Path) -> None:
    outcomes: list[str] = []
    record(recording, recording / "work", _PASSES, lambda name, *_: outcomes.append(name))
    assert "small" not in outcomes


def test_records_are_tables_of_what_was_measured(recording: Path) -> None:
    folder = recording / "records"
    card = write_records(recording / "work", recording, folder, "here", "a test")
    assert machines(folder) == ("here",)
    records = open_records(folder, "here")
    assert list(records.entries) == ["small"]
    assert (card["programs"], card["remarks"]) == (1, "a test")
    assert card["left_out"] == {"broken": "has no value"}
    assert card["kernels"] == len(records.kernels) == records.kernels["fingerprint"].nunique()
    assert card["agreement"]["kernels"]["rows"] == len(records.kernels)
    assert (records.kernels[["first_ns", "second_ns"]] > 0).all(axis=None)
    assert (records.kernels["first_median_ns"] >= records.kernels["first_ns"]).all()
    # Kernels are views of the program with the machine's layouts.
    module = small_program().module
    for row in records.kernels.itertuples():
        body = module.computations[row.computation].instructions
        assert all(position < len(body) for position in (*row.instructions, *row.inputs))
        assert set(row.outputs) <= set(row.instructions)
    unfused, default = (
        records.configs[records.configs["origin"] == o].iloc[0] for o in ("unfused", "costbench")
    )
    assert sum(unfused["runs"]) == 7
    assert sum(default["runs"]) == 3
    assert list(default["fused"]) == [1] * len(default["fused"])
    assert records.machine["threads"] == 1
    assert machine_facts()["processor"] == records.machine["processor"]


def test_records_of_a_second_machine_stand_beside(recording: Path) -> None:
    folder = recording / "two"
    for name in ("first", "second"):
        write_records(recording / "work", recording, folder, name)
    assert machines(folder) == ("first", "second")
    with pytest.raises(DataError, match=r"third: no records of such a machine \(expected first, second\)"):
        open_records(folder, "third")


def test_nothing_to_write(tmp_path: Path, recording: Path) -> None:
    with pytest.raises(DataError, match="nothing was measured twice"):
        write_records(tmp_path, recording, tmp_path / "records", "here")


def test_the_command(tmp_path: Path) -> None:
    path = write_small(tmp_path)
    fusions = tmp_path / "fusions.json"
    fusions.write_text(json.dumps({"fusions": [["e", "n"]]}), "utf-8")
    done = costbench_process(["measure", path, "--fusions", fusions, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["program"] == "small"
    given = content["configs"]["given"]
    # e and n are one kernel; m, d, p, t and r the others.
    assert sorted(kernel["instructions"] for kernel in given["kernels"]) == [1, 1, 1, 2, 2, 3]
    assert sum(kernel["share"] for kernel in given["kernels"]) == pytest.approx(1.0)
    assert given["runtime_ns"] <= given["median_ns"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"fusions": [["e", "nowhere"]]}, "fusions.json: fusions: unknown instruction 'nowhere'"),
        ({"fusions": "e"}, "no fusions"),
        ({"fusions": [[1]]}, "names of instructions"),
        ({"fused": [0, 1]}, "0 or 1: the edges of small"),
    ],
)
def test_fusions_of_another_program(tmp_path: Path, content: object, problem: str) -> None:
    fusions = tmp_path / "fusions.json"
    fusions.write_text(json.dumps(content), "utf-8")
    done = costbench(["measure", write_small(tmp_path), "--fusions", fusions], tmp_path)
    assert problem in one_error(done)


def test_a_core_that_is_not_there(tmp_path: Path) -> None:
    line = one_error(costbench(["measure", write_small(tmp_path), "--core", "4096"], tmp_path))
    assert re.fullmatch(r"costbench: error: --core: no core 4096 \(expected one of [\d, ]+\)", line)
