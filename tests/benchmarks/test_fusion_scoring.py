from __future__ import annotations

from benchmarks.fusion_scoring import measure, parser


def test_figures_belong_together() -> None:
    """Times are not judged here: cores are shared."""
    arguments = ["--program", "rnn_char_b64_infer_f32", "--on", "estimate", "--processes", "2"]
    figures = measure(parser().parse_args([*arguments, "--configs", "60", "--warm-up", "20", "--full", "2"]))
    assert figures["edges"] == 73
    assert figures["kernels"] > 17
    assert figures["candidates_per_s"] == 2 * figures["candidates_per_s_each"] > 0
    assert figures["speed_up"] > 0
    assert figures["merging_percent"] > 0
    assert figures["new_kernels_per_config"] < figures["kernels"]
