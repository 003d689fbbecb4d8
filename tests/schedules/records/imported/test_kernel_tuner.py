from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.errors import DataError
from costbench_schedules.records.imported.importing import read_tuning_table
from costbench_schedules.records.imported.parquet import write_parquet
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace
from tests.schedules.records.imported.tuning_files import cache_file, t4_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_json(tmp_path / "cache.json", cache_file())
    return tmp_path / "cache.json"


def _row(table: TuningTable, **choices: Any) -> int:
    values = table.space.parameters
    row = np.array([[values[name].index(choice) for name, choice in choices.items()]])
    return int(table.space.indices(row)[0])


def test_measurements_are_those_of_the_file(path: Path) -> None:
    table = read_tuning_table(path)
    assert table.name == "convolution-A4000"
    assert len(table) == 11
    fast = _row(table, block=16, unroll=1, padding="none")
    # 2.4 ms, and 1.5 times as long in every other run; the first run is left out.
    np.testing.assert_allclose((table.first_ns[fast], table.second_ns[fast]), (2_400_000.0, 3_600_000.0))
    assert table.repeats[fast] == 4
    assert table.seconds[fast] == 0.25
    failed = _row(table, block=64, unroll=1, padding="none")
    assert np.flatnonzero(table.failed).tolist() == [failed]
    assert table.reasons[failed] == "RuntimeFailedConfig"
    assert table.seconds[failed] == 0.25
    assert np.isinf(table.second_ns[failed])
    assert table.twice


def test_a_configuration_that_the_file_lacks_is_not_legal(path: Path) -> None:
    table = read_tuning_table(path)
    assert _row(table, block=64, unroll=2, padding="full") == -1
    first = table.space.listed[_row(table, block=16, unroll=1, padding="none")]
    assert table.space.choices(first) == {"block": 16, "unroll": 1, "padding": "none"}


def _same(left: TuningTable, right: TuningTable) -> None:
    order = right.space.indices_of(left.space)
    assert sorted(order.tolist()) == list(range(len(right)))
    np.testing.assert_allclose(left.first_ns, right.first_ns[order])
    np.testing.assert_allclose(left.second_ns, right.second_ns[order])
    np.testing.assert_allclose(left.seconds, right.seconds[order])
    assert left.repeats.tolist() == right.repeats[order].tolist()
    assert left.failed.tolist() == right.failed[order].tolist()


def test_t4_and_parquet_hold_the_same_table(path: Path, tmp_path: Path) -> None:
    cache = read_tuning_table(path)
    write_json(tmp_path / "convolution-A4000.json", t4_file())
    t4 = read_tuning_table(tmp_path / "convolution-A4000.json")
    _same(cache, t4)
    assert t4.name == cache.name
    write_parquet(tmp_path / "other.parquet", cache)
    parquet = read_tuning_table(tmp_path / "other.parquet")
    _same(cache, parquet)
    assert (parquet.name, parquet.reasons) == (cache.name, cache.reasons)
    write_parquet(tmp_path / "again.parquet", parquet)
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


@pytest.mark.parametrize("name", ["repeats", "seconds", "first_ns"])
def test_a_parameter_named_like_a_column_is_refused(path: Path, tmp_path: Path, name: str) -> None:
    table = read_tuning_table(path)
    renamed = {name if old == "unroll" else old: values for old, values in table.space.parameters.items()}
    other = replace(table, space=ParameterSpace(renamed, table.space.listed))
    with pytest.raises(DataError) as error:
        write_parquet(tmp_path / "other.parquet", other)
    assert error.value.field == name
    assert not (tmp_path / "other.parquet").exists()


def test_compressed_files_are_read(path: Path, tmp_path: Path) -> None:
    cache = read_tuning_table(path)
    compressed = tmp_path / "convolution-A4000.json.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    _same(cache, read_tuning_table(compressed))
    t4 = tmp_path / "k-d.json.gz"
    t4.write_bytes(gzip.compress(json.dumps(t4_file()).encode()))
    assert read_tuning_table(t4).name == "k-d"
    whole = compressed.read_bytes()
    for damaged in (whole[:-30], whole[:40] + b"\0\0\0\0" + whole[44:]):
        compressed.write_bytes(damaged)
        with pytest.raises(DataError) as error:
            read_tuning_table(compressed)
        assert error.value.where == str(compressed)


@pytest.mark.parametrize("end", ["", ",", ",\n"])
def test_a_cache_that_is_not_closed_yet_is_read(path: Path, tmp_path: Path, end: str) -> None:
    whole = json.dumps(cache_file())
    (tmp_path / "open.json").write_text(whole.removesuffix("}}") + end)
    _same(read_tuning_table(path), read_tuning_table(tmp_path / "open.json"))
    (tmp_path / "cut.json").write_text(whole.removesuffix("}}}"))
    with pytest.raises(DataError, match="JSON"):
        read_tuning_table(tmp_path / "cut.json")


@pytest.mark.parametrize("name", ["cache", "kernel_name"])
def test_a_parameter_named_like_a_key_of_caches_leaves_t4_what_it_is(tmp_path: Path, name: str) -> None:
    content = t4_file()
    for result in content["results"]:
        result["configuration"][name] = result["configuration"].pop("unroll")
    write_json(tmp_path / "k-d.json", content)
    assert name in read_tuning_table(tmp_path / "k-d.json").space.parameters


def test_a_comma_after_t4_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "k-d.json").write_text(json.dumps(t4_file()) + ",")
    with pytest.raises(DataError, match="JSON"):
        read_tuning_table(tmp_path / "k-d.json")


def test_units_of_t4_are_read(tmp_path: Path) -> None:
    content = t4_file()
    for result in content["results"]:
        result["measurements"][0]["unit"] = "us"
    write_json(tmp_path / "k-d.json", content)
    assert read_tuning_table(tmp_path / "k-d.json").first_ns.min() == 2_400.0


def test_one_run_is_both_measurements(tmp_path: Path) -> None:
    content = cache_file()
    for entry in content["cache"].values():
        entry.pop("times", None)
    write_json(tmp_path / "once.json", content)
    table = read_tuning_table(tmp_path / "once.json")
    assert not table.twice
    np.testing.assert_array_equal(table.first_ns, table.second_ns)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cache": {}}, "cache"),
        ({"objective": "energy"}, "objective"),
        ({"tune_params": {"block": [16]}}, "tune_params"),
        ({"cache": {"8,1,none": {"block": 8, "unroll": 1, "padding": "none", "time": 1}}}, "cache.8,1,none"),
        ({"cache": {"k": {"block": 16, "unroll": 1, "padding": "none", "time": -1}}}, "cache.k"),
        ({"cache": {"k": {"block": 16, "unroll": 1, "padding": "none", "time": None}}}, "cache.k"),
        ({"cache": {"k": {"block": 16, "unroll": 1, "time": 1}}}, "cache.k"),
    ],
)
def test_impossible_caches_are_named(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    write_json(tmp_path / "bad.json", cache_file() | change)
    with pytest.raises(DataError) as error:
        read_tuning_table(tmp_path / "bad.json")
    assert error.value.field == field
    assert error.value.where is not None
    assert error.value.where.endswith("bad.json")


def _twice(results: list[Any]) -> list[Any]:
    return [*results, results[0]]


def _other_parameters(results: list[Any]) -> list[Any]:
    return [*results, results[0] | {"configuration": {"block": 16, "vector": 4}}]


def _other_unit(results: list[Any]) -> list[Any]:
    return [results[0] | {"measurements": [{"name": "time", "value": 1.0, "unit": "J"}]}]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_twice, "results[11]"),
        (_other_parameters, "results[11].configuration"),
        (_other_unit, "results[0]"),
        (lambda _: [], "results"),
        (lambda results: [results[0] | {"objectives": ["GFLOP/s"]}], "results[0].objectives"),
        (lambda results: [results[0] | {"measurements": []}], "results[0]"),
    ],
)
def test_impossible_results_are_named(tmp_path: Path, change: Any, field: str) -> None:
    content = t4_file()
    write_json(tmp_path / "bad.json", content | {"results": change(content["results"])})
    with pytest.raises(DataError) as error:
        read_tuning_table(tmp_path / "bad.json")
    assert error.value.field == field


def test_truncated_and_failing_files_are_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_bytes(path.read_bytes()[:700])
    content = cache_file()
    for entry in content["cache"].values():
        entry["time"] = "CompilationFailedConfig"
    write_json(tmp_path / "failing.json", content)
    write_parquet(tmp_path / "k-d.parquet", read_tuning_table(path))
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "k-d.parquet").read_bytes()[:700])
    for name, problem in (
        ("cut.json", "no JSON|JSON"),
        ("failing.json", "all configurations failed"),
        ("cut.parquet", "no Parquet"),
        ("missing.json", "no such file"),
    ):
        with pytest.raises(DataError, match=problem) as error:
            read_tuning_table(tmp_path / name)
        assert error.value.where is not None
        assert error.value.where.endswith(name)
        assert "\n" not in error.value.message()


def test_another_file_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "other.json", {"cache": {}})
    with pytest.raises(DataError, match="no cache file"):
        read_tuning_table(tmp_path / "other.json")
    (tmp_path / "log.json").write_text('{"input": []}\n')
    with pytest.raises(DataError, match="no tuning table"):
        read_tuning_table(tmp_path / "log.json")
