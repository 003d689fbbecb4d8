from __future__ import annotations

from benchmarks.schedule_features import measured, parser


def test_figures_belong_together() -> None:
    """Times are not judged here: cores are shared."""
    arguments = ["--workload", "matmul-256", "--processes", "1", "--candidates", "64", "--plain", "2"]
    found = measured(parser().parse_args(arguments))
    assert found["knobs"] == 9
    assert found["candidates_per_s"] == found["candidates_per_s_each"] > 0
    assert found["speed_up"] == found["candidates_per_s_each"] / found["plain_per_s"] > 0
    assert found["trees_per_s_each"] > 0
