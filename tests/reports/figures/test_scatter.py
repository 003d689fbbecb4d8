"""Predicted and measured times: read strictly, drawn a panel a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.reports.figures.programs import read_scatter, write_scatter_figures

POINT = {
    "task": "fusion",
    "split": "random",
    "chip": "tpu_v2",
    "model": "learned",
    "predicted_ns": 2000.0,
    "measured_ns": 1000,
}


def _write(folder: Path, points: object) -> Path:
    (folder / "scatter.json").write_text(json.dumps(points))
    return folder / "scatter.json"


def test_kernels_of_a_model_come_together_sorted(tmp_path: Path) -> None:
    many = {**POINT, "predicted_ns": [9.0, 8.0], "measured_ns": [7.0, 3000.0]}
    (one,) = read_scatter(_write(tmp_path, [POINT, many]))
    assert one.measured_ns.tolist() == [7.0, 1000.0, 3000.0]
    assert one.predicted_ns.tolist() == [9.0, 2000.0, 8.0]


def test_each_place_has_a_figure_and_each_model_a_panel(tmp_path: Path) -> None:
    points = [
        {**POINT, "model": m, "chip": c} for m in ("analytical", "learned") for c in ("tpu_v2", "tpu_v3")
    ]
    scatters = read_scatter(_write(tmp_path, points))
    written = write_scatter_figures(scatters, tmp_path / "first")
    again = write_scatter_figures(scatters, tmp_path / "second")
    assert list(written) == ["predicted_fusion_random_tpu_v2", "predicted_fusion_random_tpu_v3"]
    for name, path in written.items():
        assert path.read_bytes() == again[name].read_bytes()
        assert path.with_suffix(".png").exists()
        text = path.read_text()
        assert text.index(">learned, 1 kernels<") < text.index(">analytical, 1 kernels<")


@pytest.mark.parametrize(
    "broken",
    [
        {"points": []},
        [3],
        [{**POINT, "more": 1}],
        [{**POINT, "measured_ns": 0.0}],
        [{**POINT, "measured_ns": [1.0, 2.0]}],
        [{**POINT, "measured_ns": "fast"}],
    ],
)
def test_anything_else_is_refused(tmp_path: Path, broken: object) -> None:
    with pytest.raises(DataError, match=r"scatter\.json"):
        read_scatter(_write(tmp_path, broken))
