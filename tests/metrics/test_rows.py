"""Result rows survive a round trip and are read strictly."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.metrics.rows import MetricRow, RowOrigin, read_rows, write_rows

ROW = MetricRow(
    task="tile",
    split="random",
    chip="tpu_v2",
    model="learned",
    variant="main",
    seed=0,
    application="RNN",
    program="rnn_gru",
    kernels="all",
    metric="tile_size_ape",
    value=3.5,
    params_digest="p",
    data_digest="d",
    git_revision="g",
)


def test_round_trip_is_sorted_and_exact(tmp_path: Path) -> None:
    other = replace(ROW, model="analytical", value=1 / 3)
    write_rows(tmp_path / "a.jsonl", [ROW, other])
    write_rows(tmp_path / "b.jsonl", [other, ROW])
    assert read_rows(tmp_path / "a.jsonl") == (other, ROW)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_rows_say_what_computed_a_trained_network() -> None:
    common = {name: getattr(ROW, name) for name in RowOrigin.__dataclass_fields__}
    metrics = {("learned", "main", 0): {"mape": 1.0}, ("analytical", "main", 0): {"mape": 2.0}}
    rows = RowOrigin(**common).rows("all", metrics, {("learned", "main", 0): "compiled"})
    assert {row.model: row.computed_by for row in rows} == {"learned": "compiled", "analytical": ""}


def test_the_same_number_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two rows"):
        write_rows(tmp_path / "a.jsonl", [ROW, replace(ROW, value=4.0)])


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="finite"):
        write_rows(tmp_path / "a.jsonl", [replace(ROW, value=float("nan"))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "not a result row"),
        ({"seed": "zero"}, "seed"),
        ({"value": True}, "value"),
        ({"value": float("nan")}, "NaN"),
        ({"program": 3}, "program"),
    ],
)
def test_lines_that_are_no_rows_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(asdict(ROW)) + "\n" + json.dumps({**asdict(ROW), **change}) + "\n")
    with pytest.raises(DataError, match=f"rows.jsonl:2.*{message}"):
        read_rows(path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [ROW])
    text = (tmp_path / "rows.jsonl").read_text()
    (tmp_path / "rows.jsonl").write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match="malformed JSON"):
        read_rows(tmp_path / "rows.jsonl")


def test_variants_of_a_model_are_different_rows(tmp_path: Path) -> None:
    other = replace(ROW, variant="undirected", value=7.0)
    write_rows(tmp_path / "a.jsonl", [other, ROW])
    assert read_rows(tmp_path / "a.jsonl") == (ROW, other)


def test_rows_without_a_variant_are_refused(tmp_path: Path) -> None:
    values = asdict(ROW)
    del values["variant"]
    (tmp_path / "a.jsonl").write_text(json.dumps(values) + "\n")
    with pytest.raises(DataError, match=r"a.jsonl:1.*variant"):
        read_rows(tmp_path / "a.jsonl")


def test_rows_of_a_program_by_model_variant_and_seed() -> None:
    origin = RowOrigin("tile", "random", "tpu_v2", "VGG", "vgg19", "p", "d", "r")
    problems = {
        ("learned", "top10", 1): {"speedup": 1.5, "slowdown": 0.25},
        ("random", "top10", 0): {"speedup": 0.5},
    }
    rows = list(origin.rows("all", problems))
    assert [(r.model, r.variant, r.seed, r.metric, r.value) for r in rows] == [
        ("learned", "top10", 1, "speedup", 1.5),
        ("learned", "top10", 1, "slowdown", 0.25),
        ("random", "top10", 0, "speedup", 0.5),
    ]
    assert {(r.task, r.split, r.chip, r.application, r.program, r.kernels) for r in rows} == {
        ("tile", "random", "tpu_v2", "VGG", "vgg19", "all")
    }
    assert {(r.params_digest, r.data_digest, r.git_revision) for r in rows} == {("p", "d", "r")}
