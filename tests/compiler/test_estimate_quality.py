from __future__ import annotations

from dataclasses import fields
from itertools import pairwise

import pytest

from costbench.compiler.estimate_quality import QUALITIES, RULES, Knowledge, knowledge_of, rule_numbers
from costbench.errors import ChoiceError


def test_numbers_are_places_among_the_choices_of_each_rule() -> None:
    numbers = dict(zip(RULES, rule_numbers(Knowledge(refetch="every", halo=False)).tolist(), strict=True))
    assert numbers["refetch"] == 2
    assert numbers["halo"] == 0
    assert numbers["control"] == 1
    assert numbers["box_padding"] == numbers["overlap"] == numbers["directions"] == numbers["units"] == 0


def test_each_quality_knows_all_that_those_before_it_know() -> None:
    best = Knowledge()
    for crude, fine in pairwise(QUALITIES.values()):
        learned = [rule for rule in RULES if getattr(crude, rule) != getattr(fine, rule)]
        assert learned
        assert all(getattr(crude, rule) != getattr(best, rule) for rule in learned)
    assert list(QUALITIES.values())[-1] == best
    assert len(QUALITIES) >= 4


def test_every_rule_is_described() -> None:
    assert Knowledge.__doc__ is not None
    assert all(f"{field.name}: " in Knowledge.__doc__ for field in fields(Knowledge))


def test_an_unknown_quality_is_an_error_that_lists_the_choices() -> None:
    assert knowledge_of("expert") == Knowledge()
    with pytest.raises(ChoiceError, match=r"unknown estimate 'xla'.*roofline, tiles"):
        knowledge_of("xla")
