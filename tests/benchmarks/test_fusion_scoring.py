from __future__ import annotations

from benchmarks.fusion_scoring import measured, parser


def test_figures_belong_together() -> None:
    """Times are not judged here: cores are shared."""
    arguments = ["--program", "rnn_char_b64_infer_f32", "--on", "estimate", "--processes", "2"]
    found = measured(parser().parse_args([*arguments, "--configs", "60", "--warm-up", "20", "--full", "2"]))
    assert found["edges"] == 73
    assert found["kernels"] > 17
    assert found["candidates_per_s"] == 2 * found["candidates_per_s_each"] > 0
    assert found["speed_up"] > 0
    assert found["merging_percent"] > 0
    assert found["new_kernels_per_config"] < found["kernels"]
