"""The page is one file, well-formed, escaped, with working links inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from costbench.reports.figures.results import write_program_figure
from costbench.reports.page import PageFigure, Pointer, Section, write_page
from costbench.reports.results import Cell
from costbench.reports.table import Column, Table

_VOID = {"meta", "link", "br", "hr", "img", "wbr"}


class _Checker(HTMLParser):
    """Collects identifiers, links and unclosed elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"]] if values.get("id") else []  # type: ignore[list-item]
        self.links += [values["href"]] if tag == "a" and values.get("href") else []  # type: ignore[list-item]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pointers_are_links_to_sections(tmp_path: Path) -> None:
    pointers = (Pointer("Which is <best>?", "The other & no.", "results"),)
    sections = (Section("top", "Top", "top", pointers=pointers), Section("results", "Results", "results"))
    write_page(tmp_path / "index.html", "Title", "Lead", sections)
    text = (tmp_path / "index.html").read_text()
    assert '<li><a href="#results">Which is &lt;best&gt;?</a> The other &amp; no.</li>' in text
    assert text.index("Which is") < text.index('id="results"')


def test_details_are_folded_and_keep_their_anchors(tmp_path: Path) -> None:
    tables = tuple(
        Table(name, f"Table {name}", (Column("x", "X"),), (("a_b",),)) for name in ("open", "shut")
    )
    more = (Pointer("More?", "Yes.", "shut"),)
    sections = (Section("s", "S", "s", tables=tables, folded=("shut",), more=more),)
    write_page(tmp_path / "index.html", "Title", "Lead", sections)
    text = (tmp_path / "index.html").read_text()
    assert '<h3 id="open">Table open</h3>' in text
    assert '<details id="shut">\n<summary>Table shut</summary>' in text
    assert text.index("<summary>More questions</summary>") < text.index('<a href="#shut">More?</a>')
    # Long names may go on in a new line.
    assert "a_<wbr>b" in text
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []


def test_page(make_cell: Callable[..., Cell], tmp_path: Path) -> None:
    cell = make_cell()
    figures = []
    for name in ("one", "two"):
        svg, _ = write_program_figure(cell, None, tmp_path / name)
        figures.append(PageFigure(svg.rename(svg.with_stem(name)), "Bars & <more>", "caption"))
    table = Table("t", "A <table>", (Column("x", "X", "group"),), (("<script>alert(1)</script>",), (1.5,)))
    section = Section(
        "results", "Results", "results", ("Text & more.",), tuple(figures), (table,), (("a", "b"),)
    )
    write_page(tmp_path / "index.html", "Title", "Lead", (section,))
    text = (tmp_path / "index.html").read_text()
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    inside = [link[1:] for link in checker.links if link.startswith("#")]
    assert inside
    assert set(inside) <= set(checker.ids)
    assert "tables/t.csv" in checker.links
    assert "<script" not in text
    # Nothing is loaded from elsewhere: all addresses are names of XML vocabularies.
    outside = set(re.findall(r'(?:src|href)="(https?://[^"]+)"', text))
    assert outside == set()
    # References between elements of a figure survive the renaming.
    for target in re.findall(r"url\(#([^)]+)\)", text):
        assert target in checker.ids
