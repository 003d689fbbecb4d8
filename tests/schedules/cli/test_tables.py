"""Commands for tuning tables, on small files of the formats that Kernel Tuner writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from costbench.artifacts import write_json
from costbench.cli.app import complete_app
from costbench.errors import CostbenchError
from costbench_schedules.records.imported.importing import read_tuning_table
from tests.schedules.records.imported.tuning_files import cache_file, t4_file

SMALL = ["--trials", "10", "--repeats", "3"]


def call(*arguments: str | Path) -> str:
    """Runs a command that succeeds; returns what it prints."""
    result = CliRunner().invoke(complete_app(), [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path) -> CostbenchError:
    """Runs a command that is refused; returns the error."""
    result = CliRunner().invoke(complete_app(), [str(argument) for argument in arguments])
    assert isinstance(result.exception, CostbenchError)
    assert "\n" not in result.exception.message()
    return result.exception


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    write_json(tmp_path / "cache.json", cache_file())
    return tmp_path / "cache.json"


def searched(*arguments: str | Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(call("search-table", *arguments, *SMALL, "--json"))
    return content


def test_an_imported_table_is_searched_like_its_source(cache: Path, tmp_path: Path) -> None:
    call("schedules", "import", cache, "--out", tmp_path / "tables")
    imported = tmp_path / "tables" / "convolution-A4000.parquet"
    table = read_tuning_table(imported)
    assert (table.name, len(table), int(table.failed.sum())) == ("convolution-A4000", 11, 1)
    result = searched(imported)
    assert [facts["configurations"] for facts in result["tables"]] == [11]
    assert result["tables"][0]["best_ns"] == searched(cache)["tables"][0]["best_ns"] == table.best_ns
    assert len(result["rows"]) == 2 * 3 * 6
    assert {row["metric"] for row in result["rows"]} >= {"trials_to_95", "trials_to_99", "best_at_10", "auc"}
    by_strategy = {row["strategy"]: row for row in result["summary"] if row["metric"] == "best_at_10"}
    assert by_strategy.keys() == {"random", "genetic"}
    assert 0.5 < by_strategy["random"]["low"] <= by_strategy["random"]["value"] <= 1.0


def test_names_of_kernel_and_device_can_be_given(tmp_path: Path) -> None:
    write_json(tmp_path / "results.json", t4_file())
    call(
        "schedules", "import", tmp_path / "results.json", "--out", tmp_path, "--kernel", "k", "--device", "d"
    )
    assert read_tuning_table(tmp_path / "k-d.parquet").name == "k-d"


def test_several_tables_are_compared(cache: Path, tmp_path: Path) -> None:
    paths = []
    for device in ("a", "b", "c"):
        write_json(tmp_path / f"{device}.json", cache_file() | {"device_name": device})
        paths.append(tmp_path / f"{device}.json")
    result = searched(*paths, "--strategy", "annealing", "--strategy", "random", "--against", "random")
    across = {(row["strategy"], row["metric"]): row for row in result["over_tables"]}
    assert across["random", "trials_to_95_ratio"]["value"] == 1.0
    assert across["annealing", "trials_to_95_ratio"]["tables"] == 3
    assert result["against"] == "random"
    shown = call("search-table", *paths, "--strategy", "random", *SMALL, "--plot", tmp_path / "figure")
    assert all(f"convolution-{device}" in shown for device in "abc")
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert (tmp_path / "figure.png").is_file()


def test_one_run_a_configuration_is_said(tmp_path: Path) -> None:
    content = cache_file()
    for entry in content["cache"].values():
        entry.pop("times", None)
    write_json(tmp_path / "once.json", content)
    result = CliRunner().invoke(complete_app(), ["search-table", str(tmp_path / "once.json"), *SMALL])
    assert "measured twice" in result.stderr
    assert searched(tmp_path / "once.json")["tables"][0]["twice"] is False


def test_mistakes_are_one_error(cache: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(cache.read_bytes()[:900])
    assert refused("search-table", cut).where == str(cut)
    assert refused("schedules", "import", cut, "--out", tmp_path / "new").where == str(cut)
    assert not (tmp_path / "new").exists()
    assert "convolution-A4000 again" in refused("search-table", cache, cache).message()
    assert "strategy" in refused("search-table", cache, "--strategy", "clever").message()
    assert (
        "genetic" in refused("search-table", cache, "--against", "genetic", "--strategy", "random").message()
    )
    assert "no such file" in refused("search-table", tmp_path / "missing.json").message()
    write_json(tmp_path / "other.json", cache_file() | {"kernel_name": "gemm", "device_name": "A100"})
    for source in (cache, tmp_path / "other.json"):
        assert refused("search-table", cache, "--source", source).where == str(source)


def test_transfer_needs_tables_of_other_devices_which_no_other_strategy_reads(
    cache: Path, tmp_path: Path
) -> None:
    write_json(tmp_path / "other.json", cache_file() | {"device_name": "A100"})
    for name in ("transfer-target", "bayesian-transfer"):
        assert refused("search-table", cache, "--strategy", name, *SMALL).where == str(cache)
        searched(cache, "--strategy", name, "--source", tmp_path / "other.json")
    assert "--source" in refused("search-table", cache, "--source", tmp_path / "other.json").message()


def failing() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a cache and a file of T4 in which every configuration failed."""
    cache, t4 = cache_file(), t4_file()
    cache["cache"] = {key: entry | {"time": "RuntimeFailedConfig"} for key, entry in cache["cache"].items()}
    t4["results"] = [result | {"invalidity": "runtime", "measurements": []} for result in t4["results"]]
    return cache, t4


def mixed() -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns files in which one entry is of another kernel."""
    cache, t4 = cache_file(), t4_file()
    other = {"tile": 4, "time": 1.0}
    cache["cache"] |= {"4": other}
    t4["results"].append(t4["results"][0] | {"configuration": {"tile": 4}})
    return cache, t4


def parquet_of(table: pd.DataFrame, path: Path, **columns: Any) -> Path:
    table.assign(**columns).to_parquet(path)
    return path


def test_truncated_mixed_and_failing_files_are_one_line(cache: Path, tmp_path: Path) -> None:
    """Of every format; the line names the file, and nothing is written."""
    call("schedules", "import", cache, "--out", tmp_path)
    whole = tmp_path / "convolution-A4000.parquet"
    frame = pd.read_parquet(whole)
    some = [*frame["failed"][1:], "also failed"]
    files = [
        parquet_of(frame, tmp_path / "failing.parquet", first_ns=np.nan, second_ns=np.nan, failed="all"),
        parquet_of(frame, tmp_path / "mixed.parquet", failed=some),
        parquet_of(frame, tmp_path / "words.parquet", first_ns="fast"),
        parquet_of(frame, tmp_path / "empty.parquet", block=None),
        parquet_of(frame, tmp_path / "repeats.parquet", repeats=np.nan),
        parquet_of(frame.drop(columns="second_ns"), tmp_path / "less.parquet"),
    ]
    for name, contents in {"failing": failing(), "mixed": mixed()}.items():
        for kind, content in zip(("cache", "t4"), contents, strict=True):
            write_json(tmp_path / f"{name}-{kind}.json", content)
            files.append(tmp_path / f"{name}-{kind}.json")
    write_json(tmp_path / "t4.json", t4_file())
    for path in (cache, tmp_path / "t4.json", whole):
        files.append(tmp_path / f"cut-{path.name}")
        files[-1].write_bytes(path.read_bytes()[:900])
    (tmp_path / "twice.json").write_bytes(2 * cache.read_bytes())
    for path in (*files, tmp_path / "twice.json"):
        assert refused("search-table", path, *SMALL).where == str(path), path
        assert refused("schedules", "import", path, "--out", tmp_path / "new").where == str(path), path
    assert not (tmp_path / "new").exists()


def test_records_of_schedules_are_imported_by_the_same_command(tmp_path: Path) -> None:
    log = tmp_path / "tuned.log"
    log.write_text("[]\n")
    assert "tuned.log:1" in refused("schedules", "import", log, "--out", tmp_path / "new").message()
    for option in ("--kernel", "--device"):
        error = refused("schedules", "import", log, "--out", tmp_path / "other", option, "name")
        assert (error.where, error.field) == (str(log), option)
    assert not (tmp_path / "other").exists()


def test_the_stage_runs_without_a_command_of_its_group(tmp_path: Path) -> None:
    error = refused("schedules", "--params", tmp_path / "missing.yaml")
    assert "missing.yaml" in error.message()
