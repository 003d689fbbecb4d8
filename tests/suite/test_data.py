"""The data of the suite: complete, described, the same for everyone, and other for another seed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from costbench.errors import CostbenchError
from costbench.features.feature_shards import FeatureShard
from costbench.target import load_target
from costbench_suite.data import make_data
from costbench_suite.kernel_samples import SUMMARY_FEATURES
from costbench_suite.program_tables import digest_table
from costbench_suite.task_data import TaskData
from tests.suite.conftest import PROGRAMS, TASKS


def test_decisions_are_those_that_were_measured(tile: TaskData, work: Path) -> None:
    shard = FeatureShard(work / "features" / "tile" / "tpu_v3" / f"{PROGRAMS[0]}.arrow")
    rows = tile.decisions(PROGRAMS[0])
    runtimes = np.concatenate([shard.runtime_ns(index) for index in range(len(shard))])
    assert rows["runtime_ns"].tolist() == runtimes.tolist()
    assert rows["id"].nunique() == len(shard)
    third = rows[rows["id"] == f"{PROGRAMS[0]}/2"]
    assert third["decision"].tolist() == list(range(len(shard.runtime_ns(2))))
    assert third["estimate_ns"].tolist() == shard.analytical_ns(2).tolist()


def test_graphs_are_those_of_the_kernels(tile: TaskData, work: Path) -> None:
    shard = FeatureShard(work / "features" / "tile" / "tpu_v3" / f"{PROGRAMS[0]}.arrow")
    graph, row = shard.graph(1), tile.table("kernels", PROGRAMS[0]).iloc[1]
    assert row["opcodes"].tolist() == graph.opcodes.tolist()
    features = np.asarray(row["node_features"]).reshape(len(graph.opcodes), -1)
    assert np.array_equal(features, graph.node_features)
    assert np.array_equal(np.asarray(row["edges"]).reshape(-1, 2), graph.edges.T)


def test_summaries_have_a_row_for_each_kernel(tile: TaskData) -> None:
    rows = tile.summaries(PROGRAMS[0])
    kernels = tile.table("kernels", PROGRAMS[0])
    assert rows.index.tolist() == kernels["id"].tolist()
    assert list(rows.columns) == list(SUMMARY_FEATURES)
    assert np.allclose(np.expm1(rows["nodes"]), [len(opcodes) for opcodes in kernels["opcodes"]], rtol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_every_program_is_tested_once_and_never_trained_on_in_its_fold(suite: Path, task: str) -> None:
    data = TaskData(suite, task)
    tested = [name for fold in data.folds for name in fold.test]
    assert sorted(tested) == sorted(data.programs.index)
    for fold in data.folds:
        known = data.programs.loc[[*fold.train, *fold.validation], "application"]
        assert not set(known) & set(data.programs.loc[list(fold.test), "application"])
        assert all(data.programs.loc[name, "fold"] == fold.number for name in fold.test)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("task", TASKS)
def test_metadata_are_valid_croissant(suite: Path, task: str) -> None:
    croissant = pytest.importorskip("mlcroissant")
    described = croissant.Dataset(str(suite / task / "croissant.json"))
    names = {record.name for record in described.metadata.record_sets}
    assert names == {path.stem for path in (suite / task).glob("*.parquet")}
    rows = list(described.records("programs"))
    assert len(rows) == len(TaskData(suite, task).programs)


def test_made_again_it_is_the_same_value_by_value(suite: Path, tmp_path: Path) -> None:
    (again,) = make_data(tmp_path, ["tile"], tmp_path / "work", lambda _: None, jobs=1, programs=PROGRAMS)
    assert again.digests == TaskData(suite, "tile").facts.digests
    for path in again.folder.glob("*.parquet"):
        assert digest_table(path) == again.digests[path.stem]


def test_a_fresh_test_set_is_of_other_decisions_on_another_machine(suite: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    make_data(tmp_path / "fresh", ["tile"], work, lambda _: None, jobs=1, fresh=7, programs=PROGRAMS[:2])
    fresh = TaskData(tmp_path / "fresh", "tile")
    assert fresh.facts.fresh == 7
    machine, published = load_target(work / "tpu_v3_fresh7.yaml"), load_target("tpu_v3")
    assert machine.architecture == published.architecture
    assert machine.timing != published.timing
    old, new = (data.decisions(PROGRAMS[0]) for data in (TaskData(suite, "tile"), fresh))
    assert set(old["id"]) == set(new["id"])
    assert not np.array_equal(old["runtime_ns"].to_numpy(), new["runtime_ns"].to_numpy())


def test_the_digest_is_of_values_and_not_of_the_file(tile: TaskData, tmp_path: Path) -> None:
    path = tile.folder / "decisions.parquet"
    file = pq.ParquetFile(path)
    with pq.ParquetWriter(tmp_path / "same.parquet", file.schema_arrow, compression="gzip") as writer:
        for number in range(file.num_row_groups):
            writer.write_table(file.read_row_group(number))
    assert digest_table(tmp_path / "same.parquet") == digest_table(path)
    assert (tmp_path / "same.parquet").read_bytes() != path.read_bytes()
    table = file.read()
    changed = table.set_column(
        table.schema.get_field_index("decision"),
        "decision",
        pc.add(table["decision"], pa.scalar(1, pa.int32())),
    )
    pq.write_table(changed, tmp_path / "other.parquet")
    assert digest_table(tmp_path / "other.parquet") != digest_table(path)


def test_a_changed_byte_of_the_data_is_one_line(suite: Path, tmp_path: Path) -> None:
    shutil.copytree(suite / "tile", tmp_path / "tile")
    path = tmp_path / "tile" / "decisions.parquet"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)
    with pytest.raises(CostbenchError, match=r"decisions\.parquet"):
        TaskData(tmp_path, "tile").decisions(PROGRAMS[0])


def test_tables_of_a_run_that_ended_early_are_of_no_data(suite: Path, tmp_path: Path) -> None:
    """Here because a folder is in the place of a file that is written after the tables."""
    shutil.copytree(suite / "gpu", tmp_path / "gpu")
    (tmp_path / "gpu" / "README.md").unlink()
    (tmp_path / "gpu" / "README.md").mkdir()
    with pytest.raises(CostbenchError, match=r"README\.md"):
        make_data(tmp_path, ["gpu"], tmp_path / "work", lambda _: None)
    assert (tmp_path / "gpu" / "decisions.parquet").is_file()
    with pytest.raises(CostbenchError, match="costbench suite data"):
        TaskData(tmp_path, "gpu")


def test_a_folder_without_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(CostbenchError, match="costbench suite data"):
        TaskData(tmp_path, "tile")
