"""`index.html`: one self-contained page, styles and figures inside, with all tables and their provenance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2
from markupsafe import Markup

from costbench.artifacts import write_text
from costbench.reports.table import Column, Table

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PageFigure:
    """A figure: its SVG file, what it shows (read aloud in its stead), and the caption below it."""

    path: Path
    alt: str
    caption: str


@dataclass(frozen=True)
class Pointer:
    """A question, its answer in a line, and where the evidence is.

    Attributes:
        question: shown as a link.
        answer: shown below it.
        anchor: of the section that has the evidence; may be empty on another page.
        page: path of another page, relative to this one; empty for this one.
    """

    question: str
    answer: str
    anchor: str
    page: str = ""

    @property
    def href(self) -> str:
        """The link: `page#anchor`, without what is empty."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        anchor: unique, for links.
        title: heading.
        label: entry of the navigation.
        paragraphs: plain text before figures and tables.
        figures: shown first.
        tables: shown after them.
        facts: name and value pairs, shown as a list.
        pointers: to other sections, shown before everything else.
        more: further pointers, folded.
        folded: names of tables that are shown when a reader asks for them.
        folded_figures: whether figures are.
    """

    anchor: str
    title: str
    label: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    pointers: tuple[Pointer, ...] = ()
    more: tuple[Pointer, ...] = ()
    folded: tuple[str, ...] = ()
    folded_figures: bool = False


def write_page(path: Path, title: str, lead: str, sections: tuple[Section, ...]) -> None:
    """Write the page.

    Args:
        path: of the HTML file; links to tables are relative to its folder (`tables/<name>.csv`).
        title: heading of the page.
        lead: first paragraph.
        sections: in order.

    Raises:
        DataError: if the page cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.get_template("index.html.j2")
    helpers = {"groups": _groups, "svg": _inline, "breakable": _breakable}
    write_text(path, template.render(title=title, lead=lead, sections=sections, **helpers))


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Runs of columns of one group: (name, width)."""
    return [(name, len(list(run))) for name, run in groupby(columns, key=lambda column: column.group)]


def _breakable(text: str) -> Markup:
    """The text, which may go on in a new line after an underscore: names of programs are long."""
    # Everything but the element is escaped.
    return Markup(str(Markup.escape(text)).replace("_", "_<wbr>"))  # noqa: S704


def _inline(figure: PageFigure) -> Markup:
    """The `<svg>` element of a file, its identifiers made unique on the page and a label for readers."""
    text = figure.path.read_text("utf-8")
    text = text[text.index("<svg") :]
    prefix = re.sub(r"\W", "-", figure.path.stem) + "-"
    text = re.sub(r'(\bid="|url\(#|href="#)', lambda match: match[0] + prefix, text)
    label = str(Markup.escape(figure.alt))
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    # The file is our own and holds no script; numbers and names in it were escaped by its writer.
    return Markup(text)  # noqa: S704


def facts_of(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Name and value pairs for a section, in order of the mapping."""
    return tuple((str(name), str(value)) for name, value in values.items())
