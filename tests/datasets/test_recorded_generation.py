"""Records of a machine as fusion samples: what a shard has of them, and what stands beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from costbench.datasets.generation import summaries_of
from costbench.datasets.machine_records import (
    CONFIG_COLUMNS,
    CONFIGS,
    KERNEL_COLUMNS,
    KERNELS,
    XLA_DEFAULT,
    read_table,
    write_table,
)
from costbench.datasets.measured_kernels import compiled_program_path
from costbench.datasets.recorded_generation import RecordedTask, find_records, records_digest, records_of
from costbench.datasets.recorded_kernels import (
    WholeProgram,
    is_recorded,
    name_of_recorded,
    read_measurements,
)
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.experiments.evaluation.fusion import predict_recorded
from costbench.experiments.evaluation.program import EvaluateParams, ProgramTask
from costbench.features.feature_shards import FeatureShard, roofline_of, write_recorded_features
from costbench.features.graph_tensors import program_features
from costbench.hlo.reader import read_module
from costbench.programs.manifest import read_program_bytes
from tests.datasets.machine_recordings import BYTE_NS, LAUNCH_NS, machine_ns, write_records

NAME = "ncf_b8192_infer_bf16"
NUM_CONFIGS = 3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Folder of records of one program."""
    folder = tmp_path_factory.mktemp("records")
    write_records(folder, repository / "data" / "programs", [NAME], NUM_CONFIGS)
    return folder


def task_of(records: Path, data: Path) -> RecordedTask:
    machine = find_records(records)
    opened = records_of(machine)
    entry = opened.entries[NAME]
    program = read_program_bytes(opened.programs_folder, entry)
    return RecordedTask(entry, program, "toy", machine, records_digest(machine), data)


@pytest.fixture(scope="module")
def data(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of these records."""
    folder = tmp_path_factory.mktemp("data")
    task_of(recorded, folder).make()
    return folder


def test_a_shard_has_the_kernels_and_runtimes_of_the_records(recorded: Path, data: Path) -> None:
    task = task_of(recorded, data)
    shard, rows = Shard.open(task.paths[0]), records_of(task.records).kernels
    by_fingerprint = {bytes(row["fingerprint"]): row for row in rows.to_dict("records")}
    assert shard.num_kernels == len(by_fingerprint) == len(rows)
    for index in range(shard.num_kernels):
        row = by_fingerprint[bytes(shard["kernel_fingerprint"][index])]
        assert shard["kernel_runtime_ns"][index] == row["first_ns"]
        assert shard["kernel_default_runs"][index] == row["default_runs"]
        first, last = shard["kernel_instructions_offsets"][index : index + 2]
        assert shard["kernel_instructions"][first:last].tolist() == row["instructions"].tolist()
    assert (shard.metadata["chip"], shard.metadata["program"]) == ("toy", NAME)
    assert is_recorded(data, "toy")
    assert not is_recorded(data, "tpu_v3")
    # What is there is not made again, what follows from other records is.
    assert summaries_of(task) is not None
    assert summaries_of(RecordedTask(**{**vars(task), "digest": "other"})) is None


def test_second_measurements_and_whole_programs_stand_beside_it(recorded: Path, data: Path) -> None:
    task = task_of(recorded, data)
    shard, tables = Shard.open(task.paths[0]), records_of(task.records)
    measured = read_measurements(data, "toy", NAME)
    second = {bytes(row["fingerprint"]): row["second_ns"] for row in tables.kernels.to_dict("records")}
    expected = [second[bytes(row)] for row in shard["kernel_fingerprint"]]
    assert measured.second_ns == tuple(expected)
    assert [program.first_ns for program in measured.programs] == tables.configs["first_ns"].tolist()
    # The default config runs each of its kernels as often as the shard says.
    default = dict(zip(measured.programs[0].kernels, measured.programs[0].runs, strict=True))
    runs = shard["kernel_default_runs"]
    assert default == {row: runs[row] for row in np.flatnonzero(runs).tolist()}


def test_what_xla_fused_by_itself_is_no_config_and_kernels_without_time_are_in_no_sum(
    recorded: Path, tmp_path: Path
) -> None:
    shutil.copytree(recorded, tmp_path / "records")
    folder = tmp_path / "records" / "toy"
    configs = read_table(folder / CONFIGS, CONFIG_COLUMNS).to_dict("records")
    configs[0]["origin"] = XLA_DEFAULT
    kernels = pd.read_parquet(folder / KERNELS).to_dict("records")
    gone = bytes(kernels[-1]["fingerprint"])
    write_table(folder / CONFIGS, configs, CONFIG_COLUMNS)
    write_table(folder / KERNELS, kernels[:-1], KERNEL_COLUMNS)
    task_of(tmp_path / "records", tmp_path / "data").make()
    measured = read_measurements(tmp_path / "data", "toy", NAME)
    assert [program.first_ns for program in measured.programs] == [
        config["first_ns"] for config in configs[1:]
    ]
    for program, config in zip(measured.programs, configs[1:], strict=True):
        known = [bytes(name) for name in config["fingerprints"]]
        assert len(program.kernels) == len(known) - (gone in known)


def test_a_program_is_the_sum_of_its_runs() -> None:
    """2 runs of 10 ns and 3 of 7 ns."""
    program = WholeProgram("random", (0, 2), (2, 3), 50, 0)
    assert program.add_up(np.array([10.0, 99.0, 7.0])) == 41.0


def test_records_of_another_program_are_refused(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "records")
    path = tmp_path / "records" / "toy" / KERNELS
    rows = pd.read_parquet(path).to_dict("records")
    rows[0]["fingerprint"] = b"\x01" * 16
    write_table(path, rows, KERNEL_COLUMNS)
    with pytest.raises(DataError, match=f"kernel 0 of {NAME} has the fingerprint 0101"):
        task_of(tmp_path / "records", tmp_path / "data").make()


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'none'}: no records of a machine"):
        find_records(tmp_path / "none")


def test_features_of_recorded_kernels_have_no_tiles_and_an_estimate_that_is_fitted(
    data: Path, recorded: Path, tmp_path: Path
) -> None:
    shard = Shard.open(task_of(recorded, data).paths[0])
    module = read_module(compiled_program_path(data, name_of_recorded("toy", NAME)))
    path = tmp_path / "features" / "fusion" / "toy" / f"{NAME}.arrow"
    write_recorded_features(path, shard, program_features(module), {"program": NAME, "application": "NCF"})
    features = FeatureShard(path)
    assert features.is_recorded
    assert features.comparable.all()
    assert len(features) == shard.num_kernels
    assert len(np.unique(features.config_features(0), axis=0)) == 1
    roofline = roofline_of([path])
    assert roofline is not None
    # Noise only adds, 2.4% in the mean.
    assert roofline.launch_ns == pytest.approx(LAUNCH_NS, rel=0.1)
    assert roofline.ns_per_byte == pytest.approx(BYTE_NS, rel=0.1)
    estimated = features.with_roofline(roofline)
    static = np.array(features.graph(1).static_features, np.float64)
    assert estimated.analytical_ns(1)[0] == pytest.approx(machine_ns(static), rel=0.1)
    packed = estimated.columns.pack(np.array([1]), [np.array([0])])
    assert packed.analytical_ns is not None
    assert packed.analytical_ns[0] == estimated.analytical_ns(1)[0]


MODEL = """
import numpy as np

class Sizes:
    tasks = ("fusion",)

    def predict(self, kernel, decisions):
        return np.full(len(decisions), 100.0 * len(kernel.instructions))
"""


def test_models_of_a_users_own_are_asked_of_kernels_without_tiles(
    data: Path, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sizes_of_kernels.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    name = "sizes_of_kernels:Sizes"
    params = EvaluateParams(("measured_again", name), (1,), (0,))
    task = ProgramTask(data, tmp_path, "toy", NAME, (), params.untrained, params, frozenset())
    predicted = predict_recorded(task, read_measurements(data, "toy", NAME))
    shard = Shard.open(task_of(recorded, data).paths[0])
    sizes = np.diff(shard["kernel_instructions_offsets"])
    assert predicted[name, "main", 0].tolist() == (100.0 * sizes).tolist()
    assert predicted["measured_again", "main", 0].tolist() == list(
        read_measurements(data, "toy", NAME).second_ns
    )
