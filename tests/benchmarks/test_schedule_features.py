from __future__ import annotations

from benchmarks.schedule_features import measure, parser


def test_figures_belong_together() -> None:
    """Times are not judged here: cores are shared."""
    arguments = ["--workload", "matmul-256", "--processes", "1", "--candidates", "64", "--plain", "2"]
    figures = measure(parser().parse_args(arguments))
    assert figures["knobs"] == 9
    assert figures["candidates_per_s"] == figures["candidates_per_s_each"] > 0
    assert figures["speed_up"] == figures["candidates_per_s_each"] / figures["plain_per_s"] > 0
    assert figures["trees_per_s_each"] > 0
