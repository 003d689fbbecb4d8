"""Figures look alike whatever the user has configured, and are the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from costbench.reports.figures.canvas import drawing, save


def _draw(folder: Path) -> tuple[Path, ...]:
    with drawing((2.0, 1.0)) as (figure, ((axes,),)):
        axes.plot([1, 2])
        return save(figure, folder / "f.1")


def test_the_users_settings_change_nothing(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in _draw(tmp_path / "a")]
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        second = [path.read_bytes() for path in _draw(tmp_path / "b")]
        assert mpl.rcParams["font.size"] == 30.0
    assert first == second
    assert b"dc:date" not in first[0]


def test_names_may_hold_dots(tmp_path: Path) -> None:
    assert [path.name for path in _draw(tmp_path)] == ["f.1.svg", "f.1.png"]
