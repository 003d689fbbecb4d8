"""Tasks of machines that exist: what was recorded, who is held out, and what noise leaves."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from costbench.artifacts import write_json
from costbench.datasets.machine_records import open_records
from costbench.errors import DataError
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.features.feature_shards import FeatureShard
from costbench.metrics.ranking import count_pairs, tau_of
from costbench_schedules.records.second_measurements import second_measurements
from costbench_schedules.records.table import read_table
from costbench_suite.cli import app
from costbench_suite.predictions import Predictions
from costbench_suite.schedule_samples import LOOP_FEATURES
from costbench_suite.scoring import score_frame
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import TASKS
from tests.suite.conftest import RECORDED_PROGRAMS

PROGRAM = RECORDED_PROGRAMS[2]


@pytest.fixture(scope="module")
def kernels(recorded: Path) -> TaskData:
    return TaskData(recorded, "fusion_xla_cpu")


@pytest.fixture(scope="module")
def schedules(recorded: Path) -> TaskData:
    return TaskData(recorded, "schedules")


def test_kernels_have_both_measurements_of_the_records(kernels: TaskData, repository: Path) -> None:
    records = open_records(repository / "data" / "xla_cpu", "amd_epyc_zen5").kernels
    records = records[records["program"] == PROGRAM]
    expected = {bytes(row.fingerprint).hex(): (row.first_ns, row.second_ns) for row in records.itertuples()}
    rows = kernels.decisions(PROGRAM).merge(kernels.table("kernels", PROGRAM, ("id", "fingerprint")), on="id")
    assert len(rows) == len(records) == len(expected)
    for row in rows.itertuples():
        assert (row.runtime_ns, row.again_ns) == expected[row.fingerprint]


def test_a_fresh_model_cannot_read_an_estimate_or_a_tile_size(kernels: TaskData) -> None:
    assert set(kernels.decisions(PROGRAM).columns) == {"id", "decision", "runtime_ns", "again_ns"}


def test_kernels_count_whose_kind_runs_by_default(kernels: TaskData, work: Path) -> None:
    path = work / "xla_cpu" / "features" / "fusion" / "xla_cpu" / f"{PROGRAM}.arrow"
    shard = FeatureShard(path)
    kinds = [frozenset(shard.instruction_opcodes(index).tolist()) for index in range(len(shard))]
    by_default = {kind for kind, runs in zip(kinds, shard.runs().tolist(), strict=True) if runs}
    scored = kernels.table("kernels", PROGRAM, ("scored",))["scored"].to_numpy()
    assert scored[shard.runs() > 0].all()
    # Kinds are coarser than sets of opcodes, so kernels with the opcodes of one that runs count too.
    assert all(scored[index] for index, kind in enumerate(kinds) if kind in by_default)


def test_folds_are_those_of_the_profile_whose_models_predict_it(repository: Path) -> None:
    of_suite, of_profile = (
        load_sections(repository / "profiles" / name)
        for name in ("suite/xla_cpu.yaml", "xla_cpu/params.yaml")
    )
    assert of_suite["split"]["folds"] == of_profile["split"]["folds"]
    assert of_suite["run"]["programs"] == of_profile["run"]["programs"]
    assert load_params(repository / "profiles" / "suite" / "xla_cpu.yaml").path.name == "xla_cpu.yaml"


def test_schedules_have_both_measurements_of_their_table(schedules: TaskData, repository: Path) -> None:
    table = read_table(repository / "data" / "schedules" / "native" / "C6.arrow")
    twice = second_measurements(table)
    assert twice is not None
    rows = schedules.decisions("C6-native")
    assert rows["runtime_ns"].tolist() == twice.first_ns.tolist()
    assert rows["again_ns"].tolist() == twice.second_ns.tolist()
    assert set(rows.index[rows["measured_again"]]) == set(table.repeats[:, 0].tolist())
    for number in (0, 17, len(table) - 1):
        choices = table.space.choices(table.space.rows([number])[0])
        row = rows.iloc[number]
        assert tuple(row[f"tile_co_{level}"] for level in range(4)) == choices["tile co"]
        assert row["unroll"] == choices["unroll"]
        assert np.isnan(row["tile_r_0"])


def test_trees_of_loops_have_the_iterations_of_the_operator(schedules: TaskData) -> None:
    name = "matmul-256-native"
    operator = schedules.table("operators", name).iloc[0]
    assert operator["flops"] == 2 * 256**3
    for row in schedules.table("loops", name).iloc[[0, 400]].itertuples():
        nodes = np.asarray(row.loop_features).reshape(len(row.parents), len(LOOP_FEATURES))
        assert all(parent < index for index, parent in enumerate(row.parents))
        computation = int(np.flatnonzero(nodes[:, LOOP_FEATURES.index("compute")])[-1])
        points, node = 1.0, int(row.parents[computation])
        while node >= 0:
            points *= 2.0 ** nodes[node, LOOP_FEATURES.index("extent")] - 1.0
            node = int(row.parents[node])
        assert points == pytest.approx(256**3, rel=1e-4)


def test_all_tables_of_an_operator_are_held_out_together(schedules: TaskData) -> None:
    assert {"C2-generic", "C2-native"} in [set(fold.test) for fold in schedules.folds]
    # A search of all of these would not find a schedule that is fast again.
    assert not {"C12-native", "matmul-1024-native"} & set(schedules.programs.index)


def test_the_order_of_schedules_is_over_those_that_were_measured_twice(schedules: TaskData) -> None:
    costs = {
        str(name): schedules.decisions(str(name))["runtime_ns"].to_numpy()
        for name in schedules.programs.index
    }
    frame = score_frame(schedules, Predictions({0: costs}, "")).set_index(["program", "metric"])["value"]
    rows = schedules.decisions("C9-generic")
    twice = rows[rows["measured_again"]]
    tau = tau_of(count_pairs(twice["runtime_ns"].to_numpy(), twice["again_ns"].to_numpy()))
    assert frame["C9-generic", "kendall_tau"] == tau
    chosen = rows["again_ns"][rows["runtime_ns"].idxmin()]
    assert frame["C9-generic", "top_1"] == pytest.approx(100 * (chosen / rows["again_ns"].min() - 1))


def test_second_measurements_of_other_kernels_are_refused(
    kernels: TaskData, work: Path, tmp_path: Path
) -> None:
    from costbench_suite.kernel_samples import recorded_tables

    path = work / "xla_cpu" / "features" / "fusion" / "xla_cpu" / f"{PROGRAM}.arrow"
    write_json(tmp_path / "recorded" / "xla_cpu" / f"{PROGRAM}.json", {"second_ns": [5], "programs": []})
    with pytest.raises(DataError, match="1 second measurements"):
        recorded_tables(path, tmp_path)


def test_a_machine_that_exists_has_no_fresh_test_set() -> None:
    arguments = ["data", "--task", "schedules", "--task", "tile", "--fresh", "7"]
    with pytest.raises(DataError, match=r"no fresh test set of schedules: .* exists") as error:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "\n" not in str(error.value)


def test_the_help_names_every_task() -> None:
    from costbench_suite import cli

    assert re.findall(r"`(\w+)`", cli._TASKS) == list(TASKS)
