"""The corpus: every program there is, from the tables of its fields.

Adding a program is one row in a table, and one function in `zoo` if its model is new.
"""

from __future__ import annotations

from corpus.specs import ProgramSpec
from corpus.tables.classifiers import CLASSIFIERS
from corpus.tables.language import LANGUAGE
from corpus.tables.others import OTHERS
from corpus.tables.vision import VISION
from costbench.errors import choose

SPECS: tuple[ProgramSpec, ...] = (*CLASSIFIERS, *VISION, *LANGUAGE, *OTHERS)


def specs_by_name() -> dict[str, ProgramSpec]:
    """The table by name."""
    return {spec.name: spec for spec in SPECS}


def find_spec(name: str) -> ProgramSpec:
    """The row called `name`.

    Raises:
        ChoiceError: listing the names, if there is none.
    """
    return choose(specs_by_name(), name, "program")
