"""What the pages say in words: templates over data, one file a section (`templates/*.txt.j2`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

_TEMPLATES = Path(__file__).parent / "templates"


def paragraphs(template: str, **data: object) -> tuple[str, ...]:
    """Returns the paragraphs of a template as plain text, those that have any.

    Args:
        template: file in `templates`, without `.txt.j2`; blank lines part its paragraphs.
        data: what it is filled with.
    """
    text = _environment().get_template(f"{template}.txt.j2").render(**data)
    lines = ("\n".join(line.strip() for line in text.splitlines())).split("\n\n")
    return tuple(" ".join(paragraph.split()) for paragraph in lines if paragraph.split())


def sentence(template: str, block: str, **data: object) -> str:
    """Returns one block of a template as plain text, such as the caption of a figure; it may be empty.

    Args:
        template: as for `paragraphs`.
        block: name of the macro in it.
        data: its arguments.
    """
    module = _environment().get_template(f"{template}.txt.j2").module
    return " ".join(str(getattr(module, block)(**data)).split())


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        # Pages escape all text; files of Markdown take it as it is.
        autoescape=False,  # noqa: S701
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
