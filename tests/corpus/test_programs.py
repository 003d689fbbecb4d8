"""The corpus as a table: it is the manifest, and what it promises about its rows holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus.collector import describe
from corpus.lowering import OPTIMIZERS
from corpus.programs import SPECS, find_spec
from corpus.specs import GUESSED, PUBLISHED, STAND_IN
from costbench.errors import ChoiceError
from costbench.programs.manifest import load_manifest

# What the manual split holds out, whole: no model of theirs may be among what is trained on.
HELD_OUT = ("Ranking", "Feats2Wave", "ImageEmbed", "SmartCompose", "WaveRNN")


def test_names_are_unique_and_optimizers_exist() -> None:
    assert len({spec.name for spec in SPECS}) == len(SPECS)
    assert {spec.optimizer for spec in SPECS} <= {"", *OPTIMIZERS}


def test_every_row_says_what_describes_it() -> None:
    assert {spec.faithful for spec in SPECS} == {PUBLISHED, STAND_IN, GUESSED}
    for spec in SPECS:
        assert re.search(r"\b(19|20)\d\d\b", spec.reference), f"{spec.name}: no year"
        assert "|" not in spec.reference
        # What is guessed has only parts that are described somewhere.
        assert spec.faithful != GUESSED or spec.reference.startswith("parts: "), spec.name


def test_one_model_has_one_description() -> None:
    """An inference program and a training program of one builder cannot be faithful to different papers."""
    described: dict[str, set[tuple[str, str]]] = {}
    for spec in SPECS:
        described.setdefault(f"{spec.application}: {spec.builder}", set()).add(
            (spec.faithful, spec.reference)
        )
    several = {builder for builder, applications in described.items() if len(applications) > 1}
    assert several == set()


@pytest.mark.parametrize("application", HELD_OUT)
def test_held_out_applications_share_no_model_with_training(application: str) -> None:
    """Otherwise a split by application would test on what was trained on."""
    builders = {spec.builder.partition("(")[0] for spec in SPECS if spec.application == application}
    others = {spec.builder.partition("(")[0] for spec in SPECS if spec.application not in HELD_OUT}
    assert builders
    assert builders & others == set()


def test_the_corpus_is_as_wide_as_it_is_said_to_be() -> None:
    assert len(SPECS) >= 125
    assert len({spec.application for spec in SPECS}) >= 44
    assert sum(spec.step == "train" for spec in SPECS) >= 80


def test_the_manifest_is_the_table(repository: Path) -> None:
    entries = {entry.name: entry for entry in load_manifest(repository / "data" / "programs")}
    assert set(entries) == {spec.name for spec in SPECS}
    for spec in SPECS:
        entry = entries[spec.name]
        assert entry == describe(spec, entry.instructions, entry.sha256)


def test_an_unknown_program_lists_the_choices() -> None:
    with pytest.raises(ChoiceError, match=r"unknown program 'lenet'.*alexnet_b128_train_f32"):
        find_spec("lenet")
