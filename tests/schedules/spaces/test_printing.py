from __future__ import annotations

from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import nest_of, nest_text
from costbench_schedules.spaces.space import ScheduleSpace, Value

WANTED = """\
for dim 1 in 6:
  for dim 2 in 6:
    for dim 3 in 2:  # vectorize
      data.padded = data, zeros around it
for y.0 in 4:  # parallel
  for x.2 in 2:
    for x.3 in 2:  # unroll
      for co.3 in 4:  # vectorize
        sums = 0
    for ci.0 in 2:
      for kh.1 in 3:
        for kw.1 in 3:  # unroll
          for x.3 in 2:  # unroll
            for co.3 in 4:  # vectorize
              sums += data.padded * weight
    for dim 2 in 2:  # unroll
      for dim 3 in 4:  # vectorize
        output = sums"""


def test_shared_loops_are_written_once() -> None:
    space = ScheduleSpace(parse_operator("conv2d:h=4,w=4,ci=2,co=4,kh=3,kw=3,pad=1"))
    choices: dict[str, Value] = {
        "tile n": (1, 1, 1, 1),
        "tile y": (4, 1, 1, 1),
        "tile x": (1, 1, 2, 2),
        "tile co": (1, 1, 1, 4),
        "tile ci": (2, 1),
        "tile kh": (1, 3),
        "tile kw": (1, 3),
        "order": "S0 S1 S2 R0 R1 S3",
        "cache": "tile",
        "vectorize": 1,
        "unroll": 16,
        "parallel": "S0",
        "padding": "root",
    }
    # Of the loops around the sum kw.1 makes 3 x 2 statements; kh.1 would make 18, more than 16.
    assert nest_text(nest_of(space, space.row_of(choices))) == WANTED
