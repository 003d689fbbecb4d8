"""Results survive being packed and restored, part by part, and what is damaged is named in one line."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costbench.artifacts import CHECKSUMS_FILE, digest_file, read_json, unseal, write_json, write_text
from costbench.errors import DataError
from costbench.experiments.archive import (
    FILES,
    HISTORIES,
    MANIFEST_FILE,
    POINTS,
    ROWS,
    SCHEMAS,
    Part,
    PartEntry,
    Record,
    read_archive,
    read_manifest,
    read_results,
    records_of,
    table_of,
    write_archive,
    write_results,
)
from costbench.experiments.grid.history import History
from costbench.experiments.identity import StageIdentity, write_identity
from costbench.experiments.packing import Changes, pack, part_names, unpack
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import Workspace, load_workspace, only_writer
from costbench.metrics.rows import MetricRow, read_rows, write_rows

ROW = MetricRow(
    "tile", "random", "tpu_v2", "learned", "main", 0, "App", "p", "all", "kendall_tau", 0.1, "a", "b", "rev"
)
ENTRY = PartEntry("params", "data", "code", "rev", 0, 0)
EXPERIMENTS = ("main-tile", "folds-fusion")


def exact(record: Record) -> tuple[object, ...]:
    """A record with its floats as bytes: NaN equals itself, and -0.0 is not 0.0."""
    return tuple(struct.pack("<d", one) if isinstance(one, float) else one for one in record)


def records(file: str, fixed: dict[str, str]) -> st.SearchStrategy[list[Record]]:
    """Any rows of a table: any text, empty and of other scripts, any 64 bits, any float."""
    of_type = {
        pa.string(): st.text(max_size=8),
        pa.int64(): st.integers(-(2**63), 2**63 - 1),
        pa.float64(): st.floats(),
    }
    columns = [
        st.just(fixed[field.name]) if field.name in fixed else of_type[field.type] for field in SCHEMAS[file]
    ]
    return st.lists(st.tuples(*columns), max_size=6)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tables_survive_the_file_to_the_bit(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fixed = {"stage": "evaluate", "experiment": "e", "path": "evaluate/e/any"}
    contents = {file: data.draw(records(file, fixed)) for file in SCHEMAS}
    tables = {file: table_of(file, rows) for file, rows in contents.items()}
    folder = tmp_path_factory.mktemp("archive")
    manifest = write_archive(folder, "p", {"experiments/e": Part(ENTRY, tables)})
    (part,) = read_archive(folder, read_manifest(folder)).values()
    for file, rows in contents.items():
        assert [*map(exact, records_of(part.tables[file]))] == [*map(exact, rows)]
    assert write_archive(folder, "p", {"experiments/e": part}) == manifest


NAMES = st.text("abc_-: é∑", max_size=6)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.builds(
            MetricRow,
            **dict.fromkeys(("task", "split", "chip", "model", "program", "metric", "computed_by"), NAMES),
            seed=st.integers(0, 2**40),
            value=st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        unique_by=lambda row: row.key,
    ),
    epochs=st.lists(
        st.dictionaries(st.sampled_from(["train/loss", "validation/tau", "é"]), st.floats(), min_size=1),
        min_size=1,
        max_size=4,
    ),
    times=st.lists(st.lists(st.floats(1.0, 1e12), min_size=1, max_size=3), max_size=3),
)
def test_files_of_stages_come_back_to_the_byte(
    rows: list[MetricRow],
    epochs: list[dict[str, float]],
    times: list[list[float]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    out, restored = (tmp_path_factory.mktemp("out") for _ in range(2))
    write_rows(out / "evaluate/e/rows.jsonl", rows)
    history = History(out / "train/e/cell/history.csv", steps_per_epoch=10)
    for number, metrics in enumerate(epochs, 1):
        history.log_metrics(metrics, 10 * number)
    point = {"task": "fusion", "split": "s", "chip": "c", "model": "m"}
    points = [{**point, "predicted_ns": own, "measured_ns": own[::-1]} for own in times]
    write_json(out / "evaluate/e/scatter.json", points)
    contents: dict[str, list[Record]] = {file: [] for file in SCHEMAS}
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    for path in paths:
        file, records = read_results(out, path.relative_to(out))
        contents[file] += records
    assert contents[ROWS]
    assert contents[HISTORIES]
    assert bool(contents[POINTS]) == bool(times)
    write_results(restored, {file: table_of(file, own) for file, own in contents.items()})
    for path in paths:
        assert (restored / path.relative_to(out)).read_bytes() == path.read_bytes()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A profile of two experiments, of which nothing is computed yet."""
    names = "".join(f"  {name}: {{task: tile}}\n" for name in EXPERIMENTS)
    run = "run: {name: tiny, root: ., params: params.yaml, out: out, reports: reports}\n"
    write_text(tmp_path / "params.yaml", f"{run}experiments:\n{names}")
    return load_workspace(load_params(tmp_path / "params.yaml"))


def compute(workspace: Workspace, name: str, value: float = 0.5) -> None:
    """What training and evaluation leave of an experiment of one cell, weights included."""
    trained, evaluated = (workspace.stage(stage) / name for stage in ("train", "evaluate"))
    cell = trained / "tile-random-tpu_v2-main-s0"
    History(cell / "history.csv", 10).log_metrics({"validation/tau": value, "loss": math.nan}, 10)
    write_json(cell / "done.json", {"key": name, "best_metric": value})
    write_json(workspace.stage("machine") / "train" / name / f"{cell.name}.json", {"seconds": 1.5})
    write_text(cell / "weights.pt", "weights")
    write_text(trained / "baselines-random-tpu_v2" / "trees.txt", "trees")
    write_rows(evaluated / "rows.jsonl", [replace(ROW, value=value), replace(ROW, model="trees", value=-0.0)])
    write_json(evaluated / "scatter.json", [])
    write_json(workspace.stage("machine") / "evaluate" / name / "random-tpu_v2-p.json", [])
    for folder in (trained, evaluated):
        write_identity(folder, StageIdentity("params", f"data of {name}", "code"))


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, without their checksums."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS_FILE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_parts_of_different_days_add_up_and_are_restored(workspace: Workspace, tmp_path: Path) -> None:
    archive, here = tmp_path / "archive", tmp_path / "here"
    first, second = (f"experiments/{name}" for name in EXPERIMENTS)
    compute(workspace, EXPERIMENTS[0])
    assert pack(archive, workspace) == Changes((first,), ())
    before = contents(workspace.out)
    workspace.out.rename(tmp_path / "first day")
    compute(workspace, EXPERIMENTS[1], 0.25)
    assert pack(archive, workspace) == Changes((second,), (first,))
    before |= contents(workspace.out)
    # A table for a notebook.
    rows = pd.read_parquet(archive / ROWS)
    assert rows.groupby("experiment").value.max().to_dict() == {"folds-fusion": 0.25, "main-tile": 0.5}
    assert read_manifest(archive).parts[second].cells == 1
    restored = replace(workspace, out=here)
    assert unpack(archive, restored) == Changes((second, first), ())
    weights = {name for name in before if "weights" in name or "baselines" in name}
    assert contents(here) == {name: data for name, data in before.items() if name not in weights}
    # Equal results are equal bytes.
    digests = read_manifest(archive).files
    assert pack(archive, restored) == Changes((first, second), ())
    assert read_manifest(archive).files == digests


def test_a_file_in_place_of_an_archive_is_refused_before_results_are_read(workspace: Workspace) -> None:
    file = workspace.root / "archive"
    file.write_text("notes")
    with pytest.raises(DataError) as caught:
        pack(file, workspace)
    assert (caught.value.where, file.read_text()) == (str(file), "notes")
    assert {path.name for path in file.parent.glob("archive*")} == {"archive"}


def test_an_experiment_is_packed_alone_with_the_stages(workspace: Workspace, tmp_path: Path) -> None:
    """Another one, which is older here than in the archive, stays as the archive has it."""
    archive = tmp_path / "archive"
    first, second = (f"experiments/{name}" for name in EXPERIMENTS)
    compute(workspace, EXPERIMENTS[1], 0.25)
    pack(archive, workspace)
    compute(workspace, EXPERIMENTS[1], 0.75)
    with pytest.raises(DataError, match=re.escape(f"{first}: is not finished (expected {second})")):
        pack(archive, workspace, experiments=EXPERIMENTS)
    compute(workspace, EXPERIMENTS[0])
    write_identity(workspace.stage("sweep"), StageIdentity("params", "data", "code"))
    assert pack(archive, workspace, experiments=EXPERIMENTS[:1]) == Changes(("sweep", first), (second,))
    rows = pd.read_parquet(archive / ROWS)
    assert rows.groupby("experiment").value.max().to_dict() == {"folds-fusion": 0.25, "main-tile": 0.5}
    assert pack(archive, workspace, experiments=["sweep"]).written == ("sweep",)


def test_an_older_stage_is_not_packed_with_an_experiment(workspace: Workspace, tmp_path: Path) -> None:
    """Of the stages, those go along that the experiment follows from: of the same samples."""
    name, archive = EXPERIMENTS[0], tmp_path / "archive"
    compute(workspace, name)
    stages = {"split": f"data of {name}", "features": "other data", "sweep": f"data of {name}"}

    def settle(params: str) -> None:
        for stage, data in stages.items():
            write_identity(workspace.stage(stage), StageIdentity(params, data, "code"))

    settle("newer")
    pack(archive, workspace)
    settle("older")
    assert pack(archive, workspace, experiments=[name]) == Changes(
        ("split", f"experiments/{name}"), ("features", "sweep")
    )
    parts = read_manifest(archive).parts
    assert {stage: parts[stage].params_digest for stage in stages} == {
        "split": "older",
        "features": "newer",
        "sweep": "newer",
    }
    assert pack(archive, workspace, experiments=["sweep"]).written == ("sweep",)


def test_a_compact_archive_has_rows_over_all_kernels_or_collections_and_no_points(
    workspace: Workspace, tmp_path: Path
) -> None:
    name = EXPERIMENTS[0]
    compute(workspace, name)
    evaluated = workspace.stage("evaluate") / name
    kept = [ROW, replace(ROW, model="trees"), replace(ROW, kernels="xla:random")]
    write_rows(evaluated / "rows.jsonl", [replace(ROW, kernels="unseen"), *kept])
    point = dict.fromkeys(("task", "split", "chip", "model"), "x")
    write_json(evaluated / "scatter.json", [{**point, "predicted_ns": [1.0], "measured_ns": [2.0]}])
    write_identity(evaluated, StageIdentity("params", f"data of {name}", "code"))
    pack(tmp_path / "archive", workspace, compact=True)
    assert read_manifest(tmp_path / "archive").parts[f"experiments/{name}"].rows == 3
    assert len(pd.read_parquet(tmp_path / "archive" / "points.parquet")) == 0
    restored = replace(workspace, out=tmp_path / "restored")
    unpack(tmp_path / "archive", restored)
    assert read_json(restored.stage("evaluate") / name / "scatter.json") == []
    rows = read_rows(restored.stage("evaluate") / name / "rows.jsonl")
    assert sorted((row.model, row.kernels) for row in rows) == sorted(
        (row.model, row.kernels) for row in kept
    )


def test_what_the_archive_lacks_stays_missing_and_what_is_there_stays(
    workspace: Workspace, tmp_path: Path
) -> None:
    compute(workspace, EXPERIMENTS[0])
    pack(tmp_path / "archive", workspace)
    here = replace(workspace, out=tmp_path / "here")
    compute(here, EXPERIMENTS[0], 0.75)
    before = contents(here.out)
    assert unpack(tmp_path / "archive", here) == Changes((), (f"experiments/{EXPERIMENTS[0]}",))
    assert contents(here.out) == before
    # Weights of a training that was killed must not pass for those of the results.
    (here.stage("train") / EXPERIMENTS[0] / "identity.json").unlink()
    assert unpack(tmp_path / "archive", here).written == (f"experiments/{EXPERIMENTS[0]}",)
    assert not list(here.out.rglob("weights.pt"))
    assert not (here.stage("train") / EXPERIMENTS[1]).exists()


def test_networks_that_have_only_to_be_evaluated_stay(workspace: Workspace, tmp_path: Path) -> None:
    compute(workspace, EXPERIMENTS[0])
    pack(tmp_path / "archive", workspace)
    here = replace(workspace, out=tmp_path / "here")
    compute(here, EXPERIMENTS[0], 0.75)
    rmtree(here.stage("evaluate") / EXPERIMENTS[0])
    (kept,) = here.out.rglob("weights.pt")
    assert unpack(tmp_path / "archive", here) == Changes((), (f"experiments/{EXPERIMENTS[0]}",))
    assert kept.exists()
    kept.unlink()
    write_json(here.stage("train") / EXPERIMENTS[0] / "baselines-random-tpu_v2" / "done.json", {})
    assert unpack(tmp_path / "archive", here) == Changes((), (f"experiments/{EXPERIMENTS[0]}",))


def test_results_of_earlier_samples_are_not_packed_with_a_new_training(
    workspace: Workspace, tmp_path: Path
) -> None:
    compute(workspace, EXPERIMENTS[0])
    unseal(workspace.stage("train") / EXPERIMENTS[0])
    write_identity(workspace.stage("train") / EXPERIMENTS[0], StageIdentity("params", "new data", "code"))
    with pytest.raises(DataError, match="no finished results"):
        pack(tmp_path / "archive", workspace)


def test_one_packs_while_the_other_waits(workspace: Workspace, tmp_path: Path) -> None:
    archive, other = tmp_path / "archive", replace(workspace, out=tmp_path / "other")
    compute(workspace, EXPERIMENTS[0])
    pack(tmp_path / "first", workspace)
    compute(other, EXPERIMENTS[1])
    with ThreadPoolExecutor() as pool:
        with only_writer(archive):
            packed = pool.submit(pack, archive, other)
            assert wait([packed], timeout=0.3).not_done
            copytree(tmp_path / "first", archive, dirs_exist_ok=True)
        assert packed.result().kept == (f"experiments/{EXPERIMENTS[0]}",)


def test_shards_leave_their_counts_behind(workspace: Workspace, tmp_path: Path) -> None:
    """Stages whose shards are missing are not finished: training must not begin without them."""
    for name in ("leakage", "counts", "card"):
        write_json(workspace.stage("split") / f"{name}.json", {name: 1})
    write_json(workspace.stage("split") / "random.json", {"train": []})
    sizes = dict.fromkeys(("graphs", "nodes_min", "nodes_max", "configs_min", "configs_max"), 2)
    sizes |= dict.fromkeys(("nodes_mean", "configs_mean"), 2.5) | {"name": "layout:xla:random"}
    listed = workspace.stage("features") / "layout" / "tpu_v3" / "collections.json"
    write_json(listed, [{**sizes, "pairs": 4, "samples": 5}])
    for stage in ("split", "features"):
        write_identity(workspace.stage(stage), StageIdentity("params", "data", "code"))
    pack(tmp_path / "archive", workspace)
    here = replace(workspace, out=tmp_path / "here")
    assert unpack(tmp_path / "archive", here).written == ("features", "split")
    assert sorted(contents(here.out)) == [
        "features/layout/tpu_v3/collections.json",
        *(f"split/{name}.json" for name in ("card", "counts", "leakage")),
    ]


def test_parts_are_those_of_the_parameter_file(workspace: Workspace) -> None:
    experiments = [f"experiments/{name}" for name in EXPERIMENTS]
    assert [*part_names(workspace.params)] == [
        "split",
        "features",
        "sweep",
        "autotune",
        "schedules",
        *experiments,
    ]


def test_stages_of_other_packages_are_packed(workspace: Workspace, tmp_path: Path) -> None:
    folder = workspace.stage("schedules")
    write_rows(folder / "tables" / "rows.jsonl", [ROW])
    write_json(folder / "tables" / "curves.json", [{"arm": "random"}])
    write_json(folder / "tables" / "searches" / "one.json", {"key": "k"})
    write_identity(folder, StageIdentity("params", "data", "code"))
    pack(tmp_path / "archive", workspace)
    rows = pd.read_parquet(tmp_path / "archive" / ROWS)
    assert rows[["stage", "experiment"]].values.tolist() == [["schedules", "tables"]]
    here = replace(workspace, out=tmp_path / "here")
    assert unpack(tmp_path / "archive", here).written == ("schedules",)
    before = contents(workspace.out)
    assert before.pop("schedules/tables/searches/one.json")
    assert contents(here.out) == before


def test_nothing_finished_is_nothing_to_pack(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no finished results"):
        pack(tmp_path / "archive", workspace)


def truncate(archive: Path) -> None:
    path = archive / ROWS
    path.write_bytes(path.read_bytes()[:-9])


def remove(archive: Path) -> None:
    (archive / POINTS).unlink()


def forget(archive: Path) -> None:
    (archive / MANIFEST_FILE).unlink()


def garble(archive: Path) -> None:
    (archive / MANIFEST_FILE).write_text("{")


def changed(archive: Path, **values: object) -> None:
    manifest = read_json(archive / MANIFEST_FILE)
    assert isinstance(manifest, dict)
    write_json(archive / MANIFEST_FILE, {**manifest, **values})


def of_another_version(archive: Path) -> None:
    changed(archive, format=2)


def with_unknown_field(archive: Path) -> None:
    changed(archive, author="x")


def of_another_profile(archive: Path) -> None:
    changed(archive, profile="paper")


def without_parts(archive: Path) -> None:
    changed(archive, parts={})


def replaced(archive: Path, file: str, data: bytes) -> None:
    """Another file, with its digest in the manifest."""
    (archive / file).write_bytes(data)
    changed(archive, files={name: digest_file(archive / name) for name in SCHEMAS})


def not_parquet(archive: Path) -> None:
    replaced(archive, HISTORIES, b"no Parquet")


def other_columns(archive: Path) -> None:
    pq.write_table(pa.table({"value": [1.0]}), archive / "other")
    replaced(archive, ROWS, (archive / "other").read_bytes())


def leading_out(archive: Path) -> None:
    table = table_of(FILES, [("sweep/../../outside", "text")])
    empty = {file: table_of(file, ()) for file in SCHEMAS}
    write_archive(archive, "tiny", {"sweep": Part(ENTRY, {**empty, FILES: table})})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "rows.parquet: damaged, or of another archive"),
        (remove, "points.parquet: no such file"),
        (forget, "archive.json: no such file"),
        (garble, "archive.json: malformed JSON"),
        (of_another_version, "archive.json: format is 2, must be 1"),
        (with_unknown_field, "archive.json: author: "),
        (of_another_profile, "archive.json: profile: results of the profile 'paper' (expected tiny)"),
        (without_parts, "rows.parquet: rows of 'experiments/main-tile'"),
        (not_parquet, "histories.parquet: no Parquet"),
        (other_columns, "rows.parquet: the columns value: double (expected stage: string, experiment:"),
        (leading_out, "sweep/../../outside: leads out of the folder of results"),
    ],
)
def test_damage_is_named(
    damage: Callable[[Path], None], message: str, workspace: Workspace, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    compute(workspace, EXPERIMENTS[0])
    pack(archive, workspace)
    unseal(archive)  # as where somebody changes the files
    damage(archive)
    with pytest.raises(DataError, match=re.escape(message)):
        unpack(archive, replace(workspace, out=tmp_path / "here"))
    assert not (tmp_path / "here" / "evaluate").exists()


def test_files_without_their_manifest_are_not_overwritten(workspace: Workspace, tmp_path: Path) -> None:
    compute(workspace, EXPERIMENTS[0])
    pack(tmp_path / "archive", workspace)
    forget(tmp_path / "archive")
    with pytest.raises(DataError, match="not there"):
        pack(tmp_path / "archive", workspace)


def test_a_file_in_place_of_an_archive(workspace: Workspace, tmp_path: Path) -> None:
    write_text(tmp_path / "rows.parquet", "")
    with pytest.raises(DataError, match="parquet: is no folder"):
        unpack(tmp_path / "rows.parquet", workspace)


def test_values_that_are_no_results_are_refused(tmp_path: Path) -> None:
    """Nobody's writer stores them, so an archive that has them was made by something else."""
    row = ("evaluate", "e", *("x",) * 5, 0, *("x",) * 4, math.nan, *("x",) * 4)
    tables = {file: table_of(file, [row] if file == ROWS else []) for file in SCHEMAS}
    with pytest.raises(DataError, match="a finite number"):
        write_results(tmp_path, tables)


def test_wall_times_of_older_archives_come_to_the_machine(tmp_path: Path) -> None:
    for old, now in (
        ("train/e/cell-s0/timing.json", "machine/train/e/cell-s0.json"),
        ("evaluate/e/overhead.json", "machine/evaluate/e/overhead.json"),
        ("train/e/cell-s0/done.json", "train/e/cell-s0/done.json"),
    ):
        tables = {name: table_of(name, [(old, "[]")] if name == FILES else []) for name in SCHEMAS}
        write_results(tmp_path, tables)
        assert (tmp_path / now).read_text() == "[]"


def test_much_in_few_bytes_is_refused_before_it_is_unpacked(workspace: Workspace, tmp_path: Path) -> None:
    compute(workspace, EXPERIMENTS[0])
    archive = tmp_path / "archive"
    pack(archive, workspace)
    unseal(archive)
    manifest = read_json(archive / "archive.json")
    assert isinstance(manifest, dict)
    bombs = {
        "a text 4,000 times": pa.table(
            {"path": ["a"] * 4000, "text": pa.chunked_array([["x" * 100_000] * 40] * 100)},
            schema=SCHEMAS[FILES],
        ),
        "a long text": pa.table({"path": ["a"], "text": ["x" * (1 << 27)]}, schema=SCHEMAS[FILES]),
    }
    for use_dictionary, table in zip((True, False), bombs.values(), strict=True):
        pq.write_table(table, archive / FILES, compression="zstd", use_dictionary=use_dictionary)
        size = (archive / FILES).stat().st_size
        assert size < 20_000
        manifest["files"][FILES] = digest_file(archive / FILES)
        write_json(archive / "archive.json", manifest)
        with pytest.raises(DataError, match=rf"{FILES}: \d+ bytes in {size} \(expected at most"):
            read_archive(archive, read_manifest(archive))
