from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TARGET = """# A title, with `code` & more

<a name="named"></a>

## Same
## Same
```
# not a heading
```
"""


def run(repository: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "docs" / "target.md").write_text(TARGET)
    (folder / "page.md").write_text(text)
    return subprocess.run(
        [sys.executable, str(repository / "tools" / "check_links.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


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
def test_good_links_pass(repository: Path, tmp_path: Path, link: str) -> None:
    done = run(repository, tmp_path, f"# Here\n[text]({link}) ![image]({link})\n\n[reference]: {link}\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 links in 2 files, 0 broken\n"


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
def test_broken_links_are_named_with_their_place(
    repository: Path, tmp_path: Path, link: str, problem: str
) -> None:
    done = run(repository, tmp_path, f"# Here\n\n[text]({link})\n")
    assert done.returncode == 1
    assert f"page.md:3: {link}: {problem}" in done.stderr


def test_code_holds_no_links(repository: Path, tmp_path: Path) -> None:
    text = "`[a](absent)` ``[b](`absent`)``\n```\n[c](absent)\n~~~\n```\n~~~\n[d](absent)\n~~~\n"
    assert run(repository, tmp_path, text).stdout == "0 links in 2 files, 0 broken\n"


def test_git_decides_which_files_count(repository: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/ignored.md\n")
    (tmp_path / "ignored.md").write_text("[a](absent)")
    assert run(repository, tmp_path, "no links").stdout == "0 links in 2 files, 0 broken\n"
