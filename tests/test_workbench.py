"""Names for notebooks: found when they are used, and shown in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import costbench
from costbench import workbench
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.target import load_target

TEXT = """HloModule step

ENTRY main {
  x = f32[512,1024]{1,0} parameter(0)
  ROOT y = f32[512,1024]{1,0} tanh(x)
}
"""


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import costbench, sys; print(sorted({'numpy', 'torch', 'costbench.workbench'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_name_is_one_of_the_workbench() -> None:
    offered = {name for name in dir(costbench) if getattr(workbench, name, None) is getattr(costbench, name)}
    assert set(workbench.__all__) <= offered
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = costbench.nothing


def test_from_a_file_to_costs(tmp_path: Path) -> None:
    (tmp_path / "step.hlo.txt").write_text(TEXT)
    program = costbench.load_program(tmp_path / "step.hlo.txt")
    (kernel,) = costbench.kernels(program)
    space = costbench.tile_space(kernel)
    tiles = space.decode(space.legal_ids()[:4])
    measured = costbench.measure(kernel, tiles)
    predicted = costbench.predict(kernel, tiles)
    assert measured.shape == predicted.shape == (4,)
    assert (measured > 0.0).all()
    model = AnalyticalModel(load_target("tpu_v3").architecture)
    np.testing.assert_array_equal(predicted, model.predict(kernel.kernel, tiles))
    assert repr(program) == "PreparedProgram(step, 2 instructions)"
    assert repr(kernel.kernel) == "Kernel(y: f32[512,1024]{1,0}, 1 instructions)"
    assert repr(space).startswith("TileSpace(Kernel(y: f32[512,1024]{1,0}, 1 instructions), ")
    assert repr(tiles).startswith("TileSizes(4, the first: output [")
    assert max(len(repr(one)) for one in (program, kernel, space, tiles)) < 200
