"""Dotted paths name what a user wrote; what goes wrong there is one line that names the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.execution.dotted import errors_of, is_dotted, load_dotted, source_digest


@pytest.mark.parametrize(
    ("name", "dotted"),
    [
        ("mymodel:MyModel", True),
        ("pkg.mymodel:MyModel.inner", True),
        ("analytical", False),
        ("models:/costbench-tile@champion", False),
        ("out/laptop/train/cell", False),
        ("a:b:c", False),
    ],
)
def test_which_names_are_dotted_paths(name: str, dotted: bool) -> None:
    assert is_dotted(name) is dotted


def test_modules_of_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dotted_first.py").write_text("class A:\n    b = 3\n")
    assert load_dotted("dotted_first:A.b") == 3
    with pytest.raises(DataError, match=r"dotted_first:B: no attribute 'B' \(expected one of A\)"):
        load_dotted("dotted_first:B")
    with pytest.raises(DataError, match=r"dotted_first\.py:A' is no dotted path"):
        load_dotted("dotted_first.py:A")
    with pytest.raises(DataError, match=r"dotted_absent:A: no such module \(expected dotted_absent\.py in"):
        load_dotted("dotted_absent:A")


def test_errors_name_the_line_of_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dotted_import.py").write_text("import os\n\nimport dotted_missing_library\n")
    with pytest.raises(DataError, match=r"dotted_import\.py, line 3: ModuleNotFoundError: No module named"):
        load_dotted("dotted_import:A")
    (tmp_path / "dotted_syntax.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(DataError, match=r"dotted_syntax\.py, line 2: SyntaxError"):
        load_dotted("dotted_syntax:A")
    (tmp_path / "dotted_run.py").write_text(
        "import json\n\ndef inner(text):\n    return json.loads(text)\n\ndef f():\n    return inner('{')\n"
    )
    function = load_dotted("dotted_run:f")
    message = r"dotted_run:f: dotted_run\.py, line 4, in inner: JSONDecodeError"
    with pytest.raises(DataError, match=message), errors_of("dotted_run:f"):
        function()  # type: ignore[operator]


def test_the_digest_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "dotted_digest.py"
    path.write_text("raise SystemExit('is not run')\n")
    first = source_digest("dotted_digest:A")
    path.write_text("A = 1\n")
    assert source_digest("dotted_digest:A") != first
    with pytest.raises(DataError, match="no such module"):
        source_digest("dotted_nowhere:A")
