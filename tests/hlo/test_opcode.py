from __future__ import annotations

import pytest

from costbench.errors import HloError
from costbench.hlo.opcode import NUM_OPCODE_CODES, Opcode, opcodes


def test_names_are_xlas_spelling_both_ways() -> None:
    assert Opcode.REDUCE_WINDOW.xla_name == "reduce-window"
    assert all(Opcode.from_name(opcode.xla_name) is opcode for opcode in Opcode)
    with pytest.raises(HloError, match="unknown opcode 'reduce_window'"):
        Opcode.from_name("reduce_window")


def test_sets_are_written_as_names() -> None:
    assert opcodes("reduce-window add") == {Opcode.REDUCE_WINDOW, Opcode.ADD}
    with pytest.raises(HloError, match="unknown opcode 'adds'"):
        opcodes("adds")


def test_codes_fit_the_embedding_and_the_files_of_tpugraphs() -> None:
    assert max(Opcode) < NUM_OPCODE_CODES
    assert max(opcode.tpugraphs_code for opcode in Opcode) == 120
    assert (Opcode.TAN.tpugraphs_code, Opcode.ERF.tpugraphs_code, Opcode.UNKNOWN.tpugraphs_code) == (
        120,
        0,
        0,
    )
    # Two codes belong to opcodes that XLA has removed.
    assert {97, 101}.isdisjoint(set(Opcode))
