from __future__ import annotations

import pickle  # noqa: TID251 - what joblib and multiprocessing do with an exception of a worker
from pathlib import Path

import pytest

from costbench import errors
from costbench.errors import ChoiceError, CostbenchError, choose

KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CostbenchError)
]


@pytest.mark.parametrize(
    ("where", "field", "expected", "message"),
    [
        (None, None, None, "bad"),
        ("a.pb", None, None, "a.pb: bad"),
        (None, "x.y", None, "x.y: bad"),
        (Path("a") / "b", "x.y", "an int", "a/b: x.y: bad (expected an int)"),
        (None, None, "an int", "bad (expected an int)"),
    ],
)
def test_message_leaves_out_what_is_not_known(
    where: str | Path | None, field: str | None, expected: str | None, message: str
) -> None:
    assert str(CostbenchError("bad", where=where, field=field, expected=expected)) == message


@pytest.mark.parametrize("part", ["x" * 50_000_000, "a\n b\r\n\tc" * 900, "\x1b[31m\0\u2028\udc80" * 90])
@pytest.mark.parametrize("name", ["problem", "where", "field", "expected"])
def test_a_message_is_one_printable_line_below_500_letters(name: str, part: str) -> None:
    parts = {"problem": "bad", "where": "a.pb", "field": "x.y", "expected": "an int", name: part}
    message = str(CostbenchError(**parts))
    assert len(message) < 500
    assert message.isprintable()
    rest = [text for key, text in parts.items() if key != name]
    assert all(text in message for text in rest)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_crosses_a_process_boundary_whole(kind: type[CostbenchError]) -> None:
    error = kind("bad", where="a.pb", field="x", expected="y")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.problem, copy.where, copy.field, copy.expected) == ("bad", "a.pb", "x", "y")
    assert str(copy) == str(error)


def test_every_kind_is_caught_as_one() -> None:
    assert len(KINDS) >= 7
    for kind in KINDS:
        with pytest.raises(CostbenchError):
            raise kind("bad")


def test_choose_returns_the_entry() -> None:
    assert choose({"a": 1, "b": 0}, "b", "chip") == 0


def test_choose_lists_the_choices_in_order() -> None:
    with pytest.raises(ChoiceError) as caught:
        choose({"tpu_v3": 1, "tpu_v2": 2}, "cpu", "chip")
    assert str(caught.value) == "unknown chip 'cpu' (expected one of tpu_v2, tpu_v3)"
    with pytest.raises(ChoiceError) as near:
        choose({"tpu_v3": 1, "gpu": 2}, "tpu_v4", "chip")
    assert str(near.value) == "unknown chip 'tpu_v4', did you mean 'tpu_v3'? (expected one of gpu, tpu_v3)"
