from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tools import check_links

TARGET = """# A title, with `code` & more

<a name="named"></a>

## Same
## Same
```
# not a heading
```
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[[str], Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Checks a page of this text in a folder with another page."""

    def run(text: str) -> Outcome:
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / "target.md").write_text(TARGET)
        (tmp_path / "page.md").write_text(text)
        monkeypatch.setattr("sys.argv", ["check_links.py", str(tmp_path)])
        return Outcome(check_links.main(), *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    "link",
    [
        "docs/target.md",
        "/docs/target.md",
        "docs/",
        "docs/target.md#a-title-with-code--more",
        "docs/target.md#same-1",
        "docs/target.md#named",
        "#here",
        "https://example.org/absent#x",
        "mailto:a@example.org",
    ],
)
def test_good_links_pass(run: Run, link: str) -> None:
    done = run(f"# Here\n[text]({link}) ![image]({link})\n\n[reference]: {link}\n")
    assert done.code == 0, done.err
    assert done.out == "3 links in 2 files, 0 broken\n"


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("docs/absent.md", "no such file"),
        ("docs/target.md#same-2", "no heading #same-2"),
        ("docs/target.md#not-a-heading", "no heading #not-a-heading"),
        ("#there", "no heading #there"),
        ("../../etc", "leads out of the repository"),
    ],
)
def test_broken_links_are_named_with_their_place(run: Run, link: str, problem: str) -> None:
    done = run(f"# Here\n\n[text]({link})\n")
    assert done.code == 1
    assert f"page.md:3: {link}: {problem}" in done.err


def test_code_holds_no_links(run: Run) -> None:
    text = "`[a](absent)` ``[b](`absent`)``\n```\n[c](absent)\n~~~\n```\n~~~\n[d](absent)\n~~~\n"
    assert run(text).out == "0 links in 2 files, 0 broken\n"


def test_git_decides_which_files_count(run: Run, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/ignored.md\n")
    (tmp_path / "ignored.md").write_text("[a](absent)")
    assert run("no links").out == "0 links in 2 files, 0 broken\n"
