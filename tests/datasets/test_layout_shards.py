"""Which of TpuGraphs' collections a program's layouts belong to."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.datasets.layout_shards import NLP_BUILDERS, collection_folder, family_of
from costbench.programs.manifest import load_manifest


@pytest.mark.parametrize(
    ("builder", "family"),
    [
        ("bert_classifier(layers=2, features=128)", "nlp"),
        ("transformer()", "nlp"),
        ("translate(sizes=Sizes(layers=6))", "nlp"),
        ("vision_transformer(layers=12, features=384)", "xla"),
        ("conformer(features=144)", "xla"),
        ("nmt()", "xla"),
        ("keras_classifier(architecture='ResNet50')", "xla"),
        ("", "xla"),
    ],
)
def test_transformers_that_read_text_are_nlp(builder: str, family: str) -> None:
    assert family_of(builder) == family


def test_every_listed_builder_occurs_in_the_corpus(repository: Path) -> None:
    entries = load_manifest(repository / "data" / "programs")
    assert {entry.builder.partition("(")[0] for entry in entries} >= NLP_BUILDERS
    applications = {entry.application for entry in entries if family_of(entry.builder) == "nlp"}
    assert applications == {"ALBERT", "BERT", "ELECTRA", "Talking-Heads", "Transformer", "Translate"}


def test_collections_are_named_by_the_searches_in_them() -> None:
    assert collection_folder("layout:nlp:random") == "layout-nlp-random"
