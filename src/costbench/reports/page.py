"""Pages made of sections: figures, tables, and what they say in words, which templates make of data.

A section has a template of its own, `templates/NAME.txt.j2`: its block `paragraphs` is the text, blank lines
parting paragraphs; `<figure>_alt` and `<figure>_caption` go with a figure; others are single sentences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import jinja2
from markupsafe import Markup

from costbench.artifacts import write_text
from costbench.reports.table import Column, Table

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PageFigure:
    """A figure: its file, what it shows (read aloud in its stead), and the caption below it."""

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
        page: path of the first page of another report, relative to that of this one; empty for this report.
    """

    question: str
    answer: str
    anchor: str
    page: str = ""


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        name: `index`, or that of its file in the folder `pages`.
        title: heading; that of the first page if empty.
        lead: first paragraphs, a line each.
    """

    name: str
    title: str = ""
    lead: str = ""


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
        opens_with_figure: whether the first figure stands before everything else.
        page: page that it is on; None for one of its own, called after the anchor.
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
    opens_with_figure: bool = False
    page: Page | None = None


FIRST = Page("index")
"""The page that has the conclusions."""


def write_pages(
    folder: Path,
    first: Page,
    sections: tuple[Section, ...],
    words: Sequence[tuple[str, str]] = (),
    *,
    sortable: bool = False,
) -> tuple[Path, ...]:
    """Writes `index.html` and `pages/<page>.html`; returns the paths, the first page first.

    Args:
        folder: of the report; tables and figures lie in its folders `tables` and `figures`.
        first: the first page.
        sections: in order.
        words: words and what they mean, before the first number of the first page.
        sortable: whether a click on the head of a column sorts its table, by a script in the page.

    Raises:
        DataError: if a page cannot be written.
    """
    page_of = {section.anchor: section.page or Page(section.anchor) for section in sections}
    others = (page for page in page_of.values() if page.name != first.name)
    pages = {anchor: page.name for anchor, page in page_of.items()}
    # What stands on a page, sections and tables, by anchor.
    pages |= {table.name: pages[section.anchor] for section in sections for table in section.tables}
    template = page_environment().get_template("page.html.j2")
    written = []
    for shown_page in dict.fromkeys((first, *others)):
        name, root = shown_page.name, "" if shown_page == first else "../"

        def link(anchor: str, page: str = "", current: str = name, root: str = root) -> str:
            """Returns the address of a section or table, or of something on another report's first page."""
            if page:
                return f"{root}{page}#{anchor}" if anchor else f"{root}{page}"
            target = pages.get(anchor, current)
            path = "index.html" if target == first.name else f"pages/{target}.html"
            return f"#{anchor}" if target == current else f"{root}{path}#{anchor}"

        def source(figure: PageFigure, path: Path = folder, root: str = root) -> str:
            return root + figure.path.relative_to(path).as_posix()

        path = folder / ("index.html" if shown_page == first else f"pages/{name}.html")
        shown = [section for section in sections if page_of[section.anchor].name == name]
        text = template.render(
            title=shown_page.title or first.title,
            lead=shown_page.lead,
            words=words if shown_page == first else (),
            sections=sections,
            shown=shown,
            root=root,
            link=link,
            source=source,
            sortable=sortable,
        )
        write_text(path, text)
        written.append(path)
    return tuple(written)


@cache
def page_environment() -> jinja2.Environment:
    """Returns what renders pages and tables as HTML: all text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"groups": column_groups, "breakable": _breakable}
    return environment


def column_groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Returns runs of columns of one group: (name, width)."""
    return [(name, len(list(run))) for name, run in groupby(columns, key=lambda column: column.group)]


def _breakable(text: str) -> Markup:
    """Returns the text, which may go on in a new line after an underscore: names of programs are long."""
    # Everything but the element is escaped.
    return Markup(str(Markup.escape(text)).replace("_", "_<wbr>"))  # noqa: S704


@cache
def text_environment(folder: Path = _TEMPLATES) -> jinja2.Environment:
    """Returns what renders words: plain text, which pages escape and files of Markdown take as it is."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=False,  # noqa: S701
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "start": lambda text: text[:1].upper() + text[1:]}
    return environment


def _number(value: float, spec: str) -> str:
    """Returns a number as `format` does, but zero, also where it is rounded to it, without a minus."""
    text = format(value, spec)
    return format(abs(value), spec) if text.startswith("-") and not text.strip("-0.") else text


def _block(template: str | Path, block: str, data: Mapping[str, object]) -> str:
    path = template if isinstance(template, Path) else _TEMPLATES / f"{template}.txt.j2"
    loaded = text_environment(path.parent).get_template(path.name)
    return "".join(loaded.blocks[block](loaded.new_context(dict(data))))


def paragraphs(template: str | Path, block: str = "paragraphs", /, **data: object) -> tuple[str, ...]:
    """Returns the paragraphs of a template as plain text, those that have any.

    Args:
        template: file in `templates`, without `.txt.j2`; or the path of another package's.
        block: block of the template; blank lines part its paragraphs.
        data: values that the block is filled with.
    """
    lines = "\n".join(line.strip() for line in _block(template, block, data).splitlines())
    return tuple(" ".join(text.split()) for text in lines.split("\n\n") if text.split())


def sentence(template: str | Path, block: str, /, **data: object) -> str:
    """Returns one block of a template as a line of plain text; it may be empty.

    Args:
        template: file in `templates`, without `.txt.j2`; or the path of another package's.
        block: block of the template.
        data: values that the block is filled with.
    """
    return " ".join(_block(template, block, data).split())


def glossary(tasks: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Returns the words that results on these tasks need, each with what it means."""
    words = (text.partition(": ") for text in paragraphs("glossary", tasks=tasks))
    return tuple((word, meaning) for word, _, meaning in words)


def page_figure(path: Path, template: str | Path, name: str, /, **data: object) -> PageFigure:
    """Returns a figure with the words that a template has for it.

    Args:
        path: file of the figure.
        template: file in `templates`, without `.txt.j2`; or the path of another package's.
        name: beginning of the names of its two blocks, `<name>_alt` and `<name>_caption`.
        data: values that the blocks are filled with.
    """
    alt, caption = (sentence(template, f"{name}_{part}", **data) for part in ("alt", "caption"))
    return PageFigure(path, alt, caption)


def page_figures(
    paths: Sequence[Path], template: str | Path, name: str, /, **data: object
) -> list[PageFigure]:
    """Returns the figure at the first of the paths, with words as `page_figure` has; none without paths."""
    return [page_figure(path, template, name, **data) for path in paths[:1]]


def pointer(template: str | Path, name: str, anchor: str, /, *, page: str = "", **data: object) -> Pointer:
    """Returns a question with its answer in the words of a template.

    Args:
        template: file in `templates`, without `.txt.j2`; or the path of another package's.
        name: beginning of the names of its two blocks, `<name>_question` and `<name>_answer`.
        anchor: anchor of the section or table that has the evidence.
        page: path of the first page of another report that has it; empty for this report.
        data: values that the blocks are filled with.
    """
    question, answer = (sentence(template, f"{name}_{part}", **data) for part in ("question", "answer"))
    return Pointer(question, answer, anchor, page)
