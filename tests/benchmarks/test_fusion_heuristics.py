from __future__ import annotations

import json

import pytest

from benchmarks.fusion_heuristics import FOLDER, compared, compiled, main
from costbench.target import load_target

NAME = "rnn_char_b64_infer_f32"
PATH = FOLDER / f"{NAME}.hlo.pb.zst"


def test_a_program_by_both_heuristics() -> None:
    target = load_target("tpu_v3")
    default, published = compiled(PATH, "tpu", target), compiled(PATH, "published", target)
    found = compared(PATH, NAME, 151, target)
    assert (found.kernels, found.kernels_published) == (default.kernels, published.kernels)
    assert found.slowdown == published.runtime_ns / default.runtime_ns
    # Without fusions of several outputs there are more kernels.
    assert found.kernels_published > found.kernels


def test_a_line_a_program_and_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--program", NAME, "--json"]) == 0
    line, mean = capsys.readouterr().out.splitlines()
    assert json.loads(line)["program"] == NAME
    assert mean == f"1 programs, slowdown {json.loads(line)['slowdown']:.4f}, kernels " + (
        f"{json.loads(line)['kernels']} and {json.loads(line)['kernels_published']}"
    )
