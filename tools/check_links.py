"""Check the links of Markdown files: files exist and headings are there. Nothing is fetched.

    python tools/check_links.py FOLDER

Looks at every tracked or new `*.md` below FOLDER. Links to other sites are not followed, as a check
that needs the network fails for reasons that are not the documentation's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"(`+).*?\1")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?(?P<target>[^)\s>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(?P<target>[^\s>]+)>?")
_HEADING = re.compile(r"^#{1,6}\s+(?P<text>.*?)\s*#*\s*$")
_ANCHOR = re.compile(r"<a\s+(?:name|id)=\"(?P<name>[^\"]+)\"")
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


@dataclass(frozen=True)
class Link:
    """A link and where it stands."""

    file: Path
    line: int
    target: str


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Returns number and text of the lines outside fenced code, code spans blanked."""
    fence = None
    for number, line in enumerate(text.splitlines(), start=1):
        mark = _FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif fence is None:
            yield number, _CODE.sub("", line)


def links_of(file: Path) -> Iterator[Link]:
    """Returns the inline links and link definitions of a Markdown file."""
    for number, line in prose_lines(file.read_text("utf-8")):
        for match in (*_LINK.finditer(line), *_REFERENCE.finditer(line)):
            yield Link(file, number, match["target"])


def anchors_of(file: Path) -> frozenset[str]:
    """Returns what may follow `#` in a link to a Markdown file: slugs of headings, and named anchors."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    fence = None
    for line in file.read_text("utf-8").splitlines():
        mark = _FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        heading = _HEADING.match(line)
        if fence is None and heading:
            slug = re.sub(r"[^\w\- ]", "", heading["text"].lower()).replace(" ", "-")
            anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        anchors.update(match["name"] for match in _ANCHOR.finditer(line))
    return frozenset(anchors)


def problem_with(link: Link, root: Path) -> str | None:
    """Returns what is wrong with a link, or None."""
    if _ELSEWHERE.match(link.target):
        return None
    path, _, anchor = unquote(link.target).partition("#")
    base = root if path.startswith("/") else link.file.parent
    target = (base / path.lstrip("/")).resolve() if path else link.file.resolve()
    if not target.is_relative_to(root.resolve()):
        return "leads out of the repository"
    if not target.exists():
        return "no such file"
    if anchor and target.suffix == ".md" and anchor.lower() not in anchors_of(target):
        return f"no heading #{anchor}"
    return None


def markdown_files(root: Path) -> list[Path]:
    """Returns the `*.md` files git knows or would add below `root`; without git, all of them."""
    command = [
        "git",
        "-C",
        str(root),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "*.md",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        return sorted(path for path in root.rglob("*.md") if not any(p.startswith(".") for p in path.parts))
    return sorted(root / name for name in listed.stdout.split("\0") if name and (root / name).exists())


def main() -> int:
    """Prints each broken link; returns 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("root", type=Path, help="folder to look through")
    root: Path = parser.parse_args().root
    files = markdown_files(root)
    links = [link for file in files for link in links_of(file)]
    broken = [(link, problem) for link in links if (problem := problem_with(link, root)) is not None]
    for link, problem in broken:
        print(f"{link.file}:{link.line}: {link.target}: {problem}", file=sys.stderr)
    print(f"{len(links)} links in {len(files)} files, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
