from __future__ import annotations

import numpy as np

from costbench.rng import stream
from costbench_schedules.features.primitives import LENGTH, OTHERS, SPLITS, WIDTH, primitive_sequences
from costbench_schedules.operators.networks import networks, operators_of
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace


def test_lines_are_the_primitives_of_the_schedule() -> None:
    space = ScheduleSpace(parse_operator("matmul:m=8,n=16,k=4"))
    choices = {
        "tile i": (2, 1, 4, 1),
        "tile j": (1, 1, 2, 8),
        "tile r": (4, 1),
        "order": "S0 S1 S2 R0 R1 S3",
        "cache": "tile",
        "vectorize": 1,
        "unroll": 16,
        "parallel": "none",
        "padding": "none",
    }
    [result] = primitive_sequences(space, space.row_of(choices)[None])
    assert result.shape == (LENGTH, WIDTH)
    first = len(SPLITS) + len(OTHERS)
    # The last axis comes first: r of extent 4 in two factors, a reduction.
    assert result[0, : len(SPLITS)].tolist() == [0.0, 1.0]
    assert result[0, first + 1 :].tolist() == [2.0, 2.0, 0.0, 0.0, 0.0]
    assert result[1, first + 1 :].tolist() == [4.0, 0.0, 0.0, 1.0, 3.0]
    assert not result[3 : -len(OTHERS)].any()
    lines = dict(zip(OTHERS, result[-len(OTHERS) :], strict=True))
    assert lines["order"][first + 1 :].tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert lines["cache"][first + 1 :].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert lines["vectorize"][first + 1] == 1.0
    np.testing.assert_allclose(lines["unroll"][first + 1], np.log2(17.0))


def test_every_operator_of_the_networks_fits() -> None:
    for operator in operators_of(networks()):
        space = ScheduleSpace(operator)
        rows = space.sample(stream(0, "primitives"), 5)
        sequences = primitive_sequences(space, rows)
        assert np.isfinite(sequences).all()
        assert len(np.unique(sequences, axis=0)) == len(np.unique(rows, axis=0))
