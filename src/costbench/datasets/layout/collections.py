"""TpuGraphs' layout collections (tpugraphs2023, section 4): xla or nlp programs, random or default search.

`nlp` holds transformers that read text: the programs of the builders in `NLP_BUILDERS`. All others are
`xla`, among them recurrent language models, transformers for images and speech, and programs of users.
`random` holds configs drawn at random, `default` those of the genetic search that starts at the compiler's
default config. The first run of the default config is in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM

Family = Literal["xla", "nlp"]
NLP_BUILDERS = frozenset(
    {
        "albert",
        "bert_classifier",
        "bert_pretraining",
        "electra",
        "talking_heads_bert",
        "transformer",
        "transformer_lm",
        "translate",
    }
)
"""Functions of the model zoo that build transformers over text."""
SEARCHES: Mapping[str, tuple[int, int]] = {"random": (DEFAULT, RANDOM), "default": (DEFAULT, GENETIC)}
"""Values of `config_source` that each search's collections hold."""


def family_of(builder: str) -> Family:
    """Returns the family of a program.

    Args:
        builder: call of the model zoo that builds it, such as `bert_classifier(layers=2)`; empty for a user's
            program.
    """
    return "nlp" if builder.partition("(")[0] in NLP_BUILDERS else "xla"


def collection_folder(collection: str) -> str:
    """Returns the name of a collection's folder, in which the colons are hyphens."""
    return collection.replace(":", "-")
