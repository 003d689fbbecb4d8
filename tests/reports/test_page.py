"""Pages are well-formed and escaped; their links lead to what is there, on other pages too."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from costbench.reports.figures.programs import write_program_figure
from costbench.reports.page import (
    FIRST,
    Page,
    PageFigure,
    Pointer,
    Section,
    glossary,
    text_environment,
    write_pages,
)
from costbench.reports.table import Column, Table
from tests.reports.conftest import make_cell

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
    sections = (
        Section("top", "Top", "top", pointers=pointers, page=FIRST),
        Section("results", "Results", "results", page=FIRST),
        Section("beside", "Beside", "beside", pointers=pointers),
        Section("named", "Named", "named", page=Page("other", "Its <own> heading")),
        Section("also", "Also", "also", page=Page("other", "Its <own> heading")),
    )
    write_pages(tmp_path, Page("index", "Title", "Lead"), sections)
    text = (tmp_path / "index.html").read_text()
    assert '<li><a href="#results">Which is &lt;best&gt;?</a> The other &amp; no.</li>' in text
    assert text.index("Which is") < text.index('id="results"')
    assert '<a href="pages/beside.html#beside">beside</a>' in text
    beside = (tmp_path / "pages" / "beside.html").read_text()
    assert '<li><a href="../index.html#results">Which is &lt;best&gt;?</a> The other &amp; no.</li>' in beside
    assert "<h1>Title</h1>" in beside
    assert "Lead" not in beside
    other = (tmp_path / "pages" / "other.html").read_text()
    assert "<h1>Its &lt;own&gt; heading</h1>" in other
    assert 'id="named"' in other
    assert 'id="also"' in other


def test_details_are_folded_and_keep_their_anchors(tmp_path: Path) -> None:
    tables = tuple(
        Table(name, f"Table {name}", (Column("x", "X"),), (("a_b",),)) for name in ("open", "shut")
    )
    more = (Pointer("More?", "Yes.", "shut"),)
    sections = (Section("s", "S", "s", tables=tables, folded=("shut",), more=more, page=FIRST),)
    write_pages(tmp_path, Page("index", "Title", "Lead"), sections)
    text = (tmp_path / "index.html").read_text()
    assert '<h3 id="open">Table open</h3>' in text
    assert '<details id="shut">\n<summary>Table shut</summary>' in text
    assert text.index("<summary>More questions</summary>") < text.index('<a href="#shut">More?</a>')
    # Long names may go on in a new line.
    assert "a_<wbr>b" in text
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []


def test_page(tmp_path: Path) -> None:
    cell = make_cell()
    figures = []
    for name in ("one", "two"):
        svg, _ = write_program_figure(cell, None, tmp_path / name)
        figures.append(PageFigure(svg, "Bars & <more>", "caption"))
    table = Table("t", "A <table>", (Column("x", "X", "group"),), (("<script>alert(1)</script>",), (1.5,)))
    section = Section(
        "results",
        "Results",
        "results",
        ("Text & more.",),
        tuple(figures),
        (table,),
        (("a", "b"),),
        page=FIRST,
    )
    write_pages(tmp_path, Page("index", "Title", "Lead"), (section,))
    text = (tmp_path / "index.html").read_text()
    checker = _Checker()
    checker.feed(text)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert f'<img src="one/{cell.name}.svg" alt="Bars &amp; &lt;more&gt;"' in text
    inside = [link[1:] for link in checker.links if link.startswith("#")]
    assert inside
    assert set(inside) <= set(checker.ids)
    assert "tables/t.csv" in checker.links
    assert "<script" not in text
    # Nothing is loaded from elsewhere: all addresses are names of XML vocabularies.
    outside = set(re.findall(r'(?:src|href)="(https?://[^"]+)"', text))
    assert outside == set()


def test_words_stand_before_the_first_number_and_are_those_of_the_tasks(tmp_path: Path) -> None:
    words = glossary({"tile"})
    assert [word for word, _ in words][:2] == ["APE", "τ"]
    assert {"learned", "hybrid", "analytical", "strongest baseline", "undecided"} <= dict(words).keys()
    assert "MAPE" in dict(glossary({"tile", "fusion"}))
    assert sum(len(meaning.split()) for _, meaning in glossary({"tile", "fusion"})) < 250
    write_pages(tmp_path, Page("index", "Title", "Lead 1"), (), words)
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.index("<dt>APE</dt>") < page.index("Lead 1")


@pytest.mark.parametrize("opens", [True, False])
def test_a_section_may_open_with_its_first_figure(tmp_path: Path, opens: bool) -> None:
    figures = tuple(PageFigure(tmp_path / f"{name}.svg", name, "") for name in ("one", "two"))
    section = Section("a", "A", "A", ("Text",), figures, opens_with_figure=opens, page=FIRST)
    write_pages(tmp_path, Page("index", "Title", "Lead"), (section,))
    page = (tmp_path / "index.html").read_text("utf-8")
    assert (page.index("one.svg") < page.index("<p>Text</p>")) is opens
    assert page.index("<p>Text</p>") < page.index("two.svg")
    assert page.count("<img") == 2


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (-0.013, ".1f", "0.0"),
        (-0.013, "+.1f", "+0.0"),
        (-0.06, ".1f", "-0.1"),
        (-0.0, "g", "0"),
        (3, "d", "3"),
    ],
)
def test_a_number_that_is_rounded_to_zero_has_no_minus(value: float, spec: str, text: str) -> None:
    template = text_environment().from_string("{{ value | number(spec) }}")
    assert template.render(value=value, spec=spec) == text
