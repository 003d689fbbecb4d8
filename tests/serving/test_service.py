"""A service asked by rows, as MLflow passes them, and the requests that it reads."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import tile_space
from costbench.errors import ChoiceError, CostbenchError, DataError, TargetError
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.models.checkpoint import load_checkpoint
from costbench.serving.requests import RequestLimits
from costbench.serving.service import CostService, load_service, read_kernel, read_tiles
from costbench.target import load_target
from tests.experiments.finished_cells import finish_cell
from tests.experiments.kernels import tanh_kernel
from tests.hlo.builder import ModuleBuilder

FAR = RequestLimits(beyond_training=1e12, off_estimate=1e12)
GOOD = {"output_bounds": [32, 2], "kernel_bounds": [64, 2]}
TEXT = """HloModule dense
ENTRY main { a = f32[256,512]{1,0} parameter(0) b = f32[512,256]{1,0} parameter(1)
  product = f32[256,256]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = f32[256,256]{1,0} tanh(product) }"""
INFEED = "HloModule m\nENTRY e { a = f32[2] parameter(0) b = token[] infeed(a) }"
ARCHITECTURE = load_target("tpu_v2").architecture


def dense() -> HloModule:
    builder = ModuleBuilder("dense")
    product = builder.dot(builder.parameter("f32[256,512]"), builder.parameter("f32[512,256]"))
    return builder.build(builder.op("tanh", product))


def dense_kernel() -> Kernel:
    return read_kernel(TEXT, "request 0")


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_answers_are_the_models(task: str, tmp_path: Path) -> None:
    folder = finish_cell(tmp_path / "cell", task, "key", 0.5)
    kernel = read_kernel(TEXT, "request 0")
    model = load_checkpoint(folder)
    service = load_service(folder, task, "tpu_v2", FAR)
    if task == "tile":
        tiles = [GOOD, {"output_bounds": [16, 1], "kernel_bounds": [64, 1]}]
        row = {"kernel": TEXT, "tiles": tiles, "chip": "tpu_v2"}
        expected = model.predict(kernel, read_tiles(tiles, loop_nest(kernel), "")).tolist()
        answers = service.answer([row, row])
        assert [answer["costs"] for answer in answers] == [expected] * 2
        assert len(set(expected)) == 2
    else:
        space = tile_space(kernel, ARCHITECTURE)
        chosen = space.nest.tile_sizes(AnalyticalModel(ARCHITECTURE).choose(space)[None])
        (answer,) = service.answer([{"kernel": TEXT, "chip": None}])
        assert answer["runtime_ns"] == pytest.approx(model.predict(kernel, chosen)[0])
        assert answer["runtime_ns"] > 0
    assert service.answer([]) == []


def test_a_model_of_ours_is_a_model_too() -> None:
    """Whatever prices tile sizes can be served."""
    service = CostService(AnalyticalModel(ARCHITECTURE), "tile", "tpu_v2")
    (answer,) = service.answer([{"kernel": TEXT, "tiles": [GOOD]}])
    assert np.isfinite(answer["costs"]).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kernel": TEXT, "tiles": [GOOD], "chip": "tpu_v9"}, "request 1.chip: is 'tpu_v9' (expected tpu_v2"),
        ({"tiles": [GOOD]}, "request 1.kernel: is None"),
        ({"kernel": TEXT}, "request 1.tiles: is None"),
        ({"kernel": INFEED, "tiles": [GOOD]}, "request 1."),
        ({"kernel": TEXT, "tiles": [GOOD], "chips": "tpu_v2"}, "request 1: unknown key 'chips'"),
    ],
)  # fmt: skip
def test_errors_name_the_request(row: dict[str, object], message: str) -> None:
    service = CostService(AnalyticalModel(ARCHITECTURE), "tile", "tpu_v2")
    with pytest.raises(DataError) as raised:
        service.answer([{"kernel": TEXT, "tiles": [GOOD]}, row])
    assert str(raised.value).startswith(message)


def test_fused_kernels_are_priced_at_the_compilers_tile() -> None:
    service = CostService(AnalyticalModel(ARCHITECTURE), "fusion", "tpu_v2")
    with pytest.raises(DataError, match=r"request 0\.tiles: given"):
        service.answer([{"kernel": TEXT, "tiles": [GOOD]}])


def test_unknown_tasks_and_chips_are_errors() -> None:
    model = AnalyticalModel(ARCHITECTURE)
    with pytest.raises(ChoiceError, match="layout"):
        CostService(model, "layout", "tpu_v2")
    with pytest.raises(TargetError, match="tpu_v9"):
        CostService(model, "tile", "tpu_v9")


def test_a_kernel_is_the_same_in_every_form() -> None:
    data = module_to_bytes(dense())
    wrapped = b"\x0a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data  # an HloProto
    lines = "\n".join(encoded(data)[start : start + 60] for start in range(0, len(encoded(data)), 60))
    forms = [TEXT, encoded(data), encoded(wrapped), encoded(zstandard.compress(data)), lines]
    assert len({read_kernel(form, "request 0").fingerprint for form in forms}) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "request 3.kernel: is None (expected base64"),
        (17, "is 17"),
        (" ", "is ' '"),
        ("not base64!", "no base64"),
        ("HloModule x", "request 3.kernel: line 1: no entry computation"),
        (encoded(module_to_bytes(dense())[:60]), "truncated or no HLO module"),
        (encoded(b"\x00\x01\x02"), "no HLO module"),
        (encoded(zstandard.compress(module_to_bytes(dense()))[:40]), "truncated zstd frame"),
        ("HloModule m\nENTRY e { ROOT a = f32[2] parameter(0) }", "parameters alone"),
    ],
)
def test_what_is_no_kernel_is_one_error(value: object, message: str) -> None:
    with pytest.raises(CostbenchError) as raised:
        read_kernel(value, "request 3")
    assert message in str(raised.value)


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 8))
def test_damaged_bytes_raise_nothing_else(instead: bytes, start: int, length: int) -> None:
    data = module_to_bytes(dense())
    try:
        kernel = read_kernel(encoded(data[:start] + instead + data[start + length :]), "request 0")
        loop_nest(kernel)
    except CostbenchError:
        return
    assert kernel.instructions


def test_all_tile_sizes_of_a_kernel_are_read() -> None:
    for kernel in (dense_kernel(), tanh_kernel()):
        space = tile_space(kernel, load_target("tpu_v2").architecture)
        tiles = space.decode(space.legal_ids())
        rows: list[dict[str, Any]] = [{"output_bounds": row.tolist()} for row in tiles.output_bounds]
        if tiles.kernel_bounds.shape[1]:
            for row, bounds in zip(rows, tiles.kernel_bounds, strict=True):
                row["kernel_bounds"] = bounds.astype(float)  # 4.0 is 4
        read = read_tiles(rows, space.nest, "request 0")
        np.testing.assert_array_equal(read.output_bounds, tiles.output_bounds)
        np.testing.assert_array_equal(read.kernel_bounds, tiles.kernel_bounds)
        assert read.output_bounds.dtype == np.int64


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "tiles: is None (expected a list"),
        ([], "tiles: is []"),
        ("x", "tiles: is 'x'"),
        ([[32, 2]], "tiles[0]: is [32, 2]"),
        ([GOOD, {"output_bounds": [32, 2]}], "tiles[1].kernel_bounds: 0 numbers (expected 2, up to [64, 2])"),
        ([{**GOOD, "output_bounds": [32]}], "tiles[0].output_bounds: 1 numbers (expected 2, up to [32, 2])"),
        ([{**GOOD, "output_bounds": [math.nan, 2]}], "nan (expected a whole number from 1 to 32)"),
        ([{**GOOD, "output_bounds": [1.5, 2]}], "1.5 (expected"),
        ([{**GOOD, "output_bounds": [True, 2]}], "True (expected"),
        ([{**GOOD, "output_bounds": ["1", 2]}], "'1' (expected"),
        ([{**GOOD, "output_bounds": [0, 2]}], "0 (expected"),
        ([{**GOOD, "output_bounds": [33, 2]}], "33 (expected a whole number from 1 to 32)"),
        ([{**GOOD, "output_bounds": [2**70, 2]}], "(expected a whole number from 1 to 32)"),
        ([{**GOOD, "output_bounds": [math.inf, 2]}], "inf (expected"),
        ([{**GOOD, "output_bounds": 32}], "output_bounds: is 32 (expected a list of numbers)"),
        ([{**GOOD, "input_bounds": [1]}], "unknown key 'input_bounds'"),
        ([{**GOOD, "output_bounds": [32, 1]}], "kernel_bounds: is [64, 2] (expected [64, 1], as the other"),
    ],
)
def test_what_is_no_tile_size_is_one_error(value: object, message: str) -> None:
    with pytest.raises(DataError) as raised:
        read_tiles(value, loop_nest(dense_kernel()), "request 0")
    assert message in str(raised.value)
    assert str(raised.value).startswith("request 0.tiles")


def test_a_kernel_without_contraction_takes_no_kernel_bounds() -> None:
    nest = loop_nest(tanh_kernel())
    with pytest.raises(DataError, match="expected none: leave it out"):
        read_tiles([{"output_bounds": [1, 1], "kernel_bounds": [1, 1]}], nest, "request 0")
