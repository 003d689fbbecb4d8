"""A JAX function of a user's own becomes the HLO of a TPU, and what is wrong with it is one line."""

from __future__ import annotations

import importlib.util
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.context import Ctx
from corpus.lowering import lower_for_tpu
from corpus.zoo.layers import batch_norm, bias, classify, conv, dropout, embedding, max_pool, run_lstm
from costbench.errors import DataError, HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.shape import ElementType
from costbench.programs import canonical
from costbench.programs.canonical import canonicalize, count_instructions, lower_function, normalize
from costbench.programs.manifest import load_manifest, read_program_bytes
from costbench.rng import stream

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs the corpus extra (jax)")
MODULE = """
import jax
import jax.numpy as jnp

WIDTH = 8

def dense(x, w):
    return jnp.tanh(x @ w)

def many(a, b, c, d):
    return a, b, c, d

def noise(key):
    return jax.random.normal(jax.random.wrap_key_data(key, impl="rbg"), (8, 128))

def loss(weights, x):
    return (dense(x, weights["w"]) + weights["b"]).sum()

def step():
    weights = {"w": jax.ShapeDtypeStruct((16, 8), jnp.float32), "b": jnp.zeros(8)}
    return jax.grad(loss), (weights, jnp.zeros((4, 16)))

def broken(x):
    return x @ x.undefined
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module in the current folder."""
    name = f"model_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def entry(proto: bytes) -> tuple[Instruction, ...]:
    made = module_from_bytes(proto, where="made")
    return tuple(made.computations[made.entry].instructions)


@needs_jax
def test_shapes_are_those_of_the_arguments(module: str) -> None:
    body = entry(lower_function(f"{module}:dense", ["f32[32,64]", "f32[64,128]"]))
    shapes = {(inst.opcode, inst.shape.dimensions) for inst in body}
    assert {(Opcode.PARAMETER, (32, 64)), (Opcode.PARAMETER, (64, 128)), (Opcode.TANH, (32, 128))} <= shapes


@needs_jax
def test_every_kind_of_number(module: str) -> None:
    body = entry(lower_function(f"{module}:many", ["bf16[2]", "pred[]", "u8[3,1]", "f8e4m3fn[4]"]))
    shapes = [inst.shape for inst in body if inst.opcode is Opcode.PARAMETER]
    types = [(shape.element_type, shape.dimensions) for shape in shapes]
    wanted = [ElementType.BF16, ElementType.PRED, ElementType.U8, ElementType.F8E4M3FN]
    assert types == list(zip(wanted, [(2,), (), (3, 1), (4,)], strict=True))


@needs_jax
def test_it_is_the_program_of_a_tpu(module: str) -> None:
    made = module_from_bytes(lower_function(f"{module}:noise", ["u32[4]"]), where="made")
    opcodes = {inst.opcode for one in made.computations for inst in one.instructions}
    assert Opcode.RNG_BIT_GENERATOR in opcodes


@needs_jax
def test_a_function_may_bring_its_arguments(module: str) -> None:
    body = entry(lower_function(f"{module}:step", []))
    shapes = {inst.shape.dimensions for inst in body if inst.opcode is Opcode.PARAMETER}
    assert {(16, 8), (4, 16)} <= shapes


@needs_jax
@pytest.mark.parametrize(
    ("function", "shapes", "problem"),
    [
        ("dense", ["f32[32,64]", "f32(64)"], r"no shape of an array: 'f32\(64\)'"),
        ("dense", ["f32[32,64]", "(f32[2])"], "no shape of an array"),
        ("dense", ["f64[32,64]", "f64[64,128]"], "JAX makes float32 of 'f64"),
        (
            "dense",
            ["f32[32,64]", "f32[65,128]"],
            r"model_of.*:dense: model_of.*line 8, in dense: TypeError: dot",
        ),
        ("broken", ["f32[8,8]"], r"line 24, in broken: AttributeError"),
        ("WIDTH", ["f32[8]"], "is a int"),
        ("missing", ["f32[8]"], "no attribute 'missing'"),
        ("dense", [], "line|missing 2 required"),
    ],
)
def test_what_is_wrong_is_one_line(module: str, function: str, shapes: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem) as raised:
        lower_function(f"{module}:{function}", shapes)
    assert "\n" not in str(raised.value)


@needs_jax
def test_what_brings_no_arguments_is_told_so(module: str) -> None:
    (Path.cwd() / f"{module}.py").write_text("def nothing():\n    return 5\n")
    with pytest.raises(DataError, match="without arguments it returned a int"):
        lower_function(f"{module}:nothing", [])


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="JAX is not installed"):
        lower_function("model:step", [])


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


WITH_LOOPS = "smartcompose_b8_infer_f32"


@pytest.fixture(scope="module")
def program(repository: Path) -> bytes:
    folder = repository / "data" / "programs"
    return read_program_bytes(folder, next(one for one in load_manifest(folder) if one.name == WITH_LOOPS))


def disguise(proto: bytes, random: np.random.Generator) -> bytes:
    """The same program as another process would have numbered, named and annotated it."""
    module = hlo_pb2.HloModuleProto.FromString(proto)
    module.name, module.id = "jit_step", 7
    computation_ids = dict(
        zip(
            [one.id for one in module.computations],
            random.permutation(len(module.computations)).tolist(),
            strict=True,
        )
    )
    module.entry_computation_id = computation_ids[module.entry_computation_id]
    for computation in module.computations:
        shuffled = random.permutation(len(computation.instructions)).tolist()
        new_ids = {
            one.id: (computation.id << 32) + shuffled[at] for at, one in enumerate(computation.instructions)
        }
        computation.id = computation_ids[computation.id]
        computation.name = f"region_{computation.id}"
        computation.root_id = new_ids[computation.root_id]
        for one in computation.instructions:
            one.id, one.name = new_ids[one.id], f"thing_{new_ids[one.id]}"
            one.operand_ids[:] = [new_ids[operand] for operand in one.operand_ids]
            one.called_computation_ids[:] = [computation_ids[called] for called in one.called_computation_ids]
            one.metadata.op_name = "jit(step)/somewhere"
            if one.opcode != "while":
                one.backend_config = b"{}"
    order = random.permutation(len(module.computations)).tolist()
    computations = [
        hlo_pb2.HloComputationProto.FromString(module.computations[i].SerializeToString()) for i in order
    ]
    del module.computations[:]
    module.computations.extend(computations)
    # Field 68 (frontend_attributes, empty) and 40 (sharding) on the first instruction.
    module.computations[0].instructions[0].MergeFromString(b"\xa2\x04\x00\xc2\x02\x00")
    return module.SerializeToString()


def test_the_committed_form_is_a_fixed_point(program: bytes) -> None:
    assert normalize(program, WITH_LOOPS) == program


@pytest.mark.parametrize("seed", range(3))
def test_numbers_names_order_and_provenance_do_not_matter(program: bytes, seed: int) -> None:
    other = disguise(program, stream(seed, "disguise"))
    assert other != program
    assert normalize(other, WITH_LOOPS) == program


def test_computations_come_callees_first_and_ids_are_dense(program: bytes) -> None:
    module = hlo_pb2.HloModuleProto.FromString(program)
    seen_computations: set[int] = set()
    ids = []
    for computation in module.computations:
        seen: set[int] = set()
        for one in computation.instructions:
            assert set(one.operand_ids) <= seen
            assert set(one.called_computation_ids) <= seen_computations
            assert one.name == f"{one.opcode}.{one.id}"
            seen.add(one.id)
            ids.append(one.id)
        seen_computations.add(computation.id)
    assert ids == list(range(count_instructions(program)))
    assert module.entry_computation_id == module.computations[-1].id == len(module.computations)


def test_trip_counts_and_literals_survive(program: bytes) -> None:
    module = hlo_pb2.HloModuleProto.FromString(program)
    instructions = [one for computation in module.computations for one in computation.instructions]
    counted = [one for one in instructions if b"known_trip_count" in one.backend_config]
    assert len(counted) == 2  # the two LSTM scans over the prefix; beam search ends when the data says so
    assert sum(one.opcode == "while" for one in instructions) == 3
    assert all(one.HasField("literal") for one in instructions if one.opcode == "constant")


def small_module() -> hlo_pb2.HloModuleProto:
    """f(a, b) = b, with `a + b` computed for nothing, the parameters in the wrong order."""
    module = hlo_pb2.HloModuleProto(name="m", entry_computation_id=9)
    computation = module.computations.add(id=9, name="main", root_id=30)
    computation.instructions.add(id=30, opcode="parameter", parameter_number=1, name="b")
    computation.instructions.add(id=20, opcode="parameter", parameter_number=0, name="a")
    computation.instructions.add(id=10, opcode="add", operand_ids=[20, 30], name="dead")
    computation.program_shape.parameters.add(element_type=11)
    computation.program_shape.parameters.add(element_type=11)
    return module


def test_parameters_come_first_by_number_and_dead_instructions_last() -> None:
    out = hlo_pb2.HloModuleProto.FromString(normalize(small_module().SerializeToString(), "small"))
    main = out.computations[0]
    assert out.name == "small"
    assert [one.name for one in main.instructions] == ["parameter.0", "parameter.1", "add.2"]
    assert main.root_id == 1
    assert list(main.instructions[2].operand_ids) == [0, 1]
    assert list(main.program_shape.parameter_names) == ["p0", "p1"]


def test_unreachable_computations_are_dropped() -> None:
    module = small_module()
    module.computations.add(id=4, name="nobody_calls", root_id=1).instructions.add(id=1, opcode="parameter")
    out = hlo_pb2.HloModuleProto.FromString(normalize(module.SerializeToString(), "small"))
    assert [computation.id for computation in out.computations] == [1]


def test_dangling_references_are_errors() -> None:
    module = small_module()
    module.computations[0].instructions[2].operand_ids[0] = 99
    with pytest.raises(HloError, match="instruction 99 is missing"):
        normalize(module.SerializeToString(), "x")
    module = small_module()
    module.computations[0].instructions[2].called_computation_ids.append(5)
    with pytest.raises(HloError, match="computation 5 is missing"):
        normalize(module.SerializeToString(), "x")
    with pytest.raises(HloError, match="entry computation is missing"):
        normalize(b"", "x")


def test_bytes_that_are_no_proto_are_an_error() -> None:
    with pytest.raises(HloError, match="not an HloModuleProto"):
        normalize(b"\x0a\xff\xff\xff\xff", "x")
