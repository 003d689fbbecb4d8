"""How stages fail: one line for what the user can mend, a traceback for a defect."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from costbench.errors import DataError, ParamsError
from costbench.experiments.stages.entry import guarded


def _raise(error: Exception) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_success_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: None, "train") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            ParamsError("'a' is not accepted", where="p.yaml", field="train.lr", expected="a number"),
            "train: error: p.yaml: train.lr: 'a' is not accepted (expected a number)",
        ),
        (DataError("two\nlines"), "train: error: two lines"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out/x"),
            "train: error: out/x: No space left on device",
        ),
        (OSError("no file here"), "train: error: no file here"),
    ],
)
def test_what_can_be_mended_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(_raise(error), "train") == 1
    assert capsys.readouterr().err == line + "\n"


def test_defects_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(_raise(ZeroDivisionError()), "train")
