"""Programs by either heuristic: the default is unchanged, the other one gives a program that can run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.heuristics import HeuristicProgram
from costbench.compiler.program import PreparedProgram
from costbench.errors import ChoiceError
from costbench.hlo.reader import read_module

NAME = "rnn_char_b64_infer_f32"
PROGRAM = Path(__file__).resolve().parents[2] / "data" / "programs" / f"{NAME}.hlo.pb.zst"


def fingerprints(program: PreparedProgram) -> list[tuple[str, int]]:
    return [(one.fingerprint, one.runs_per_program) for one in program.unique_kernels]


def test_the_default_is_that_of_the_compiler() -> None:
    module = read_module(PROGRAM)
    assert fingerprints(HeuristicProgram(module, NAME)) == fingerprints(PreparedProgram(module, NAME))


def test_the_published_rules_give_other_kernels_with_one_output_each() -> None:
    module = read_module(PROGRAM)
    published = HeuristicProgram(module, NAME, "published")
    assert fingerprints(published) != fingerprints(PreparedProgram(module, NAME))
    # An instruction with several results is one kernel with several outputs whatever the heuristic.
    assert all(len(kernel.outputs) == 1 for kernel in published.compiled.kernels)


def test_searches_set_out_from_the_chosen_heuristic() -> None:
    program = HeuristicProgram(read_module(PROGRAM), NAME, "published")
    space = FusionSpace(program)
    cut = space.compile(space.default)
    assert [k.fingerprint for k in cut.kernels] == [k.fingerprint for k in program.compiled.kernels]
    assert not np.all(space.default)


def test_an_unknown_heuristic() -> None:
    with pytest.raises(ChoiceError, match="fusion heuristic"):
        HeuristicProgram(read_module(PROGRAM), NAME, "gpu")
