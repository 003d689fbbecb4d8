"""Pages of the documentation link to files of the repository, which a site has under other addresses.

A hook of MkDocs. A Python module is the page that pdoc makes of it, any other file is copied below `files/`;
a folder is named without a link. The pages in the repository's root, decisions and notes are added by their
files, so that a new one needs no entry in the navigation.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PROJECT = "project"
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FOLDERS = {"Decisions": "decisions", "Notes": "notes"}
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages in the root, decisions and notes to the navigation."""
    for title, folder in FOLDERS.items():
        pages = sorted(path.name for path in (DOCS / folder).glob("[0-9]*.md"))
        entries: list[Any] = [f"{folder}/README.md", *(f"{folder}/{name}" for name in pages)]
        config.nav = [*(config.nav or []), {title: entries}]
    root_pages = [f"{PROJECT}/{name}" for name in ROOT_PAGES if (ROOT / name).exists()]
    config.nav = [*(config.nav or []), {"Project": root_pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages in the root to those of `docs`."""
    for name in ROOT_PAGES:
        if (ROOT / name).exists():
            files.append(File.generated(config, f"{PROJECT}/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page with its links to files of the repository led to where the site has them."""
    folder = Path(page.file.abs_src_path or "").parent

    def moved(match: re.Match[str]) -> str:
        path = (folder / match["target"]).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            return match[0]
        if path.is_dir():
            return match["text"]
        address, anchor = _address(path, config, files), match["anchor"] or ""
        relative = os.path.relpath(address, Path(page.file.src_uri).parent)
        return f"{match['image']}[{match['text']}]({relative}{anchor})"

    return _LINK.sub(moved, markdown)


def _address(path: Path, config: MkDocsConfig, files: Files) -> str:
    """Returns where the site has a file of the repository; a file that it lacks is added to it."""
    inside = path.relative_to(ROOT)
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if inside.as_posix() in ROOT_PAGES:
        return f"{PROJECT}/{inside.name}"
    if inside.suffix == ".py" and inside.parts[0] == "src":
        module = Path(*inside.parts[1:])
        return (
            (Path("api") / (module.parent if module.stem == "__init__" else module))
            .with_suffix(".html")
            .as_posix()
        )
    # As text: MkDocs would make a page of Markdown, and pages are read by now.
    address = f"files/{inside.as_posix()}" + (".txt" if inside.suffix == ".md" else "")
    if files.get_file_from_path(address) is None:
        files.append(File.generated(config, address, abs_src_path=str(path)))
    return address
