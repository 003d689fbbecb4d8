"""Canonicalisation and the normal form change how a program is written, never what it computes."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from corpus.context import Ctx
from corpus.lowering import lower_for_tpu
from corpus.zoo.cells import run_lstm
from corpus.zoo.layers import batch_norm, bias, classify, conv, dropout, embedding, max_pool
from costbench.errors import DataError, HloError
from costbench.hlo.proto import hlo_pb2
from costbench.programs import canonical
from costbench.programs.canonical import canonicalize
from costbench.programs.normal_form import normalize
from costbench.rng import stream

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")


def little_of_everything(c: Ctx) -> Any:
    """A strided convolution, batch norm, pooling, dropout, an embedding and a scan, all of them tiny."""
    x = jax.nn.relu(batch_norm(c, bias(c, conv(c, c.input(c.batch, 8, 8, 3), 4, 3, 2))))
    x = dropout(c, max_pool(x, 2, 2).reshape(c.batch, 4, 4), 0.25)
    words = embedding(c, c.tokens(c.batch, 4), 5, 4)
    return classify(c, run_lstm(c, x + words, 6)[:, -1], 3)


def run(proto: bytes, arguments: list[Any]) -> list[np.ndarray]:
    """Compile a module with stock XLA and run it on one CPU device."""
    hlo, internal = import_module("jaxlib._hlo"), import_module("jaxlib._jax")
    options = import_module("jaxlib.xla_client").CompileOptions()
    # The code runs once: optimising it would take longer than running it.
    options.env_option_overrides = [("xla_backend_optimization_level", 0)]
    device = jax.local_devices(backend="cpu")[0]
    module = internal.mlir.xla_computation_to_mlir_module(hlo.XlaComputation(proto))
    executable = device.client.compile_and_load(module, internal.DeviceList((device,)), options)
    results = executable.execute_sharded([jax.device_put(one, device) for one in arguments])
    return [np.asarray(one[0]) for one in results.disassemble_into_single_device_arrays()]


def arguments_of(proto: bytes) -> list[np.ndarray]:
    """Arguments for a module's parameters: positive floats, small integers."""
    module = hlo_pb2.HloModuleProto.FromString(proto)
    random = stream(0, "arguments")
    arguments: list[np.ndarray] = []
    for shape in module.host_program_shape.parameters:
        extents = tuple(shape.dimensions)
        if shape.element_type == 11:  # F32
            arguments.append(random.uniform(0.1, 1.0, extents).astype(np.float32))
        else:
            kind = {4: np.int32, 8: np.uint32}[shape.element_type]
            arguments.append(random.integers(0, 3, extents).astype(kind))
    return arguments


@pytest.mark.parametrize("optimizer", ["momentum", ""])
def test_the_canonical_program_computes_the_same(optimizer: str) -> None:
    c = Ctx(4, train=bool(optimizer), dtype="f32")
    raw = lower_for_tpu(little_of_everything, c, optimizer)
    final = normalize(canonicalize(raw), "tiny")
    arguments = arguments_of(final)
    before, after = run(raw, arguments), run(final, arguments)
    assert len(before) == len(after) > 0
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
    opcodes = Counter(one.opcode for part in hlo_pb2.HloModuleProto.FromString(final).computations
                      for one in part.instructions)  # fmt: skip
    assert not {"call", "fusion", "copy", "bitcast", "custom-call"} & set(opcodes)
    assert opcodes["while"] == (2 if optimizer else 1)
    assert opcodes["rng-bit-generator"] == (1 if optimizer else 0)


def test_bfloat16_is_not_widened() -> None:
    raw = lower_for_tpu(little_of_everything, Ctx(4, train=True, dtype="bf16"), "sgd")
    module = hlo_pb2.HloModuleProto.FromString(canonicalize(raw))
    heavy = [one for part in module.computations for one in part.instructions if one.opcode == "convolution"]
    assert heavy
    assert {one.shape.element_type for one in heavy} == {16}  # BF16


def test_a_module_that_xla_refuses_is_an_error_with_its_reason() -> None:
    raw = lower_for_tpu(little_of_everything, Ctx(4, train=False, dtype="f32"), "")
    module = hlo_pb2.HloModuleProto.FromString(normalize(raw, "broken"))
    add = next(one for one in module.computations[-1].instructions if one.opcode == "dot")
    add.shape.dimensions[0] = 77
    with pytest.raises(HloError, match="XLA refuses the module"):
        canonicalize(module.SerializeToString())


def test_the_hook_is_gone_afterwards() -> None:
    canonicalize(lower_for_tpu(lambda c: c.input(2) + 1.0, Ctx(1, train=False, dtype="f32"), ""))
    assert float(jax.jit(lambda x: x * 3.0)(2.0)) == 6.0


def test_another_jaxlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "version", lambda _: "9.9.9")
    with pytest.raises(DataError, match=r"jaxlib 9\.9\.9 is installed \(expected jaxlib 0\.10\.2\)"):
        canonicalize(b"")
