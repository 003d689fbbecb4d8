from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import ChoiceError, SpaceTooLargeError
from costbench_schedules.features.trees import LoopTrees
from costbench_schedules.features.vectors import REPRESENTATIONS, precompute
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace

SPACE = ScheduleSpace(parse_operator("matmul:m=16,n=16,k=4"))
PART = SPACE.sub_space(
    {
        "tile i": [(4, 1, 2, 2), (2, 2, 2, 2)],
        "tile j": [(1, 4, 1, 4), (16, 1, 1, 1)],
        "order": ["S0 S1 R0 S2 R1 S3"],
        "unroll": [16],
        "parallel": ["none"],
        "vectorize": [1],
    }
)


@pytest.mark.parametrize("name", sorted(REPRESENTATIONS))
def test_what_is_precomputed_is_what_is_computed(name: str) -> None:
    assert PART.size == 36
    table = precompute(PART, name)
    rows = PART.rows([35, 0, 7, 7])
    result, expected = table(rows), REPRESENTATIONS[name](PART, rows)
    if isinstance(result, LoopTrees):
        # A batch has as many places as its largest tree.
        indices = expected.depths.shape[1]
        assert not result.depths[:, indices:].any()
        for column in ("values", "parents", "depths", "identifiers"):
            real = result.depths[:, :indices] > 0
            mine, other = getattr(result, column)[:, :indices], getattr(expected, column)
            assert np.array_equal(mine[real], other[real])
    else:
        assert np.array_equal(result, expected)


def test_large_spaces_and_unknown_names_are_refused() -> None:
    with pytest.raises(SpaceTooLargeError, match="sub_space"):
        precompute(SPACE, "relation")
    with pytest.raises(ChoiceError, match="relation"):
        precompute(PART, "graph")
