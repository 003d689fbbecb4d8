"""Every truncated, damaged or foreign file is one clear error; what is read is whole."""

from __future__ import annotations

import gc
import gzip
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from costbench.compiler.fingerprints import module_fingerprint
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.errors import HloError
from costbench.hlo import reader
from costbench.hlo.conversion import module_to_bytes, module_to_proto
from costbench.hlo.cost_analysis import module_cost
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import read_proto
from costbench.hlo.text.parser import module_from_text
from tests.hlo.builder import ModuleBuilder
from tests.hlo.random_modules import modules


def small() -> HloModule:
    b = ModuleBuilder("small")
    x = b.parameter("f32[8,8]")
    return b.build(b.reduce(b.op("tanh", x), (1,)))


@pytest.fixture(scope="module")
def layout_proto(shared_data: Path) -> hlo_pb2.HloModuleProto:
    message = tuning_pb2.ModuleTuningData()
    message.ParseFromString((shared_data / "real_tpu" / "layout_module.pb").read_bytes())
    return message.module


def test_a_file_reads_the_same_plain_compressed_and_wrapped(tmp_path: Path) -> None:
    module = small()
    data = module_to_bytes(module)
    wrapped = b"\x0a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data + b"\x1a\x00"
    stream = zstandard.ZstdCompressor().compressobj()  # writes no content size into its header
    for name, content in {
        "plain.pb": data,
        "small.pb.zst": zstandard.compress(data),
        "streamed.pb.zst": stream.compress(data) + stream.flush(),
        "dump.hlo_proto.pb": wrapped,
        "compressed.hlo.pb.gz": gzip.compress(wrapped),
    }.items():
        (tmp_path / name).write_bytes(content)
        assert reader.read_module(tmp_path / name) == module


def test_a_module_without_a_name_is_called_by_its_file(tmp_path: Path) -> None:
    proto = module_to_proto(small())
    proto.name = ""
    (tmp_path / "mine.pb").write_bytes(proto.SerializeToString())
    assert reader.read_module(tmp_path / "mine.pb").name == "mine.pb"


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(HloError, match=r"nothing\.pb: no such file"):
        reader.read_module(tmp_path / "nothing.pb")
    with pytest.raises(HloError, match="cannot read"):
        reader.read_module(tmp_path)


def test_every_truncation_is_one_clear_error() -> None:
    data = module_to_bytes(small())
    whole = reader.module_from_bytes(data, where="x.pb")
    for cut in range(len(data)):
        try:
            damaged = reader.module_from_bytes(data[:cut], where="x.pb")
        except HloError as error:
            assert "x.pb" in str(error)
        else:
            # Behind the last computation come optional fields only: nothing of the program is lost.
            assert damaged.computations[: len(whole.computations)] == whole.computations


def test_every_truncation_of_a_compressed_file_is_an_error() -> None:
    module = module_to_bytes(small())
    for name, data in (("x.zst", zstandard.compress(module)), ("x.gz", gzip.compress(module))):
        for cut in range(len(data)):
            with pytest.raises(HloError, match=name):
                reader.module_from_bytes(data[:cut], where=name)


@given(st.binary(max_size=300))
def test_random_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(HloError, match="noise"):
        reader.module_from_bytes(data, where="noise")


@given(modules(max_steps=5), st.integers(0, 10**6))
def test_damaged_modules_are_errors_or_still_whole(module: HloModule, seed: int) -> None:
    generator = np.random.default_rng(seed)
    data = bytearray(module_to_bytes(module))
    for index in generator.integers(len(data), size=generator.integers(1, 4)):
        data[index] = generator.integers(256)
    try:
        damaged = reader.module_from_bytes(bytes(data), where="damaged")
    except HloError as error:
        assert str(error)
    else:
        # What passes `verify` can be used: no later stage meets an index out of range.
        assert module_cost(damaged).flops >= 0
        assert module_fingerprint(damaged)


def test_another_message_is_no_module(shared_data: Path) -> None:
    with pytest.raises(HloError, match=r"tile_calibration\.pb.*expected a binary HloModuleProto"):
        reader.read_module(shared_data / "real_tpu" / "tile_calibration.pb")


# What to break (module, entry computation, its tanh, its reduce), by the problem that has to be reported.
BREAKS: dict[str, Callable[..., object]] = {
    "unknown opcode 'frobnicate'": lambda _m, _e, tanh, _r: setattr(tanh, "opcode", "frobnicate"),
    "operand id 999 does not exist": lambda _m, _e, tanh, _r: tanh.operand_ids.__setitem__(0, 999),
    "one stored before its user": lambda _m, _e, tanh, r: tanh.operand_ids.__setitem__(0, r.id),
    "called computation id 999": lambda _m, _e, _t, r: r.called_computation_ids.__setitem__(0, 999),
    "calls itself": lambda _m, entry, _t, r: r.called_computation_ids.__setitem__(0, entry.id),
    "computations that reduce calls: 0 ": lambda _m, _e, _t, r: r.ClearField("called_computation_ids"),
    "entry computation id 999": lambda module, _e, _t, _r: setattr(module, "entry_computation_id", 999),
    "root id 999 does not exist": lambda _m, entry, _t, _r: setattr(entry, "root_id", 999),
    "two instructions share an id": lambda _m, entry, tanh, _r: setattr(tanh, "id", entry.instructions[0].id),
    "two computations share an id": lambda m, entry, _t, _r: setattr(entry, "id", m.computations[0].id),
    "99 is not a valid ElementType": lambda _m, _e, tanh, _r: setattr(tanh.shape, "element_type", 99),
    r"shape f32\[-3,8\].* extents of 0 or more": lambda _m, _e, t, _r: t.shape.dimensions.__setitem__(0, -3),
    r"layout \(1, 1\) of 2 axes": lambda _m, _e, t, _r: t.shape.layout.minor_to_major.__setitem__(1, 1),
    "operands of reduce: 1 ": lambda _m, _e, _t, r: r.operand_ids.pop(),
    r"parameter numbers \[4\]": lambda _m, e, _t, _r: setattr(e.instructions[0], "parameter_number", 4),
}


@pytest.mark.parametrize("problem", BREAKS)
def test_broken_modules_name_the_file_and_the_problem(problem: str) -> None:
    proto = module_to_proto(small())
    entry = proto.computations[-1]
    tanh, reduce = (next(i for i in entry.instructions if i.opcode == name) for name in ("tanh", "reduce"))
    BREAKS[problem](proto, entry, tanh, reduce)
    with pytest.raises(HloError, match=problem) as caught:
        reader.module_from_proto(proto, where="small.pb")
    assert "small" in str(caught.value)


def test_computations_are_put_callees_first() -> None:
    proto = module_to_proto(small())
    proto.computations.reverse()
    assert [c.name for c in reader.module_from_proto(proto, where="x").computations] == ["add.f32", "main"]


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (b'{"known_trip_count":{"n":"12"}}', 12),
        (b'{"known_trip_count":{"n":3}}', 3),
        (b"{}", None),
        (b"", None),
        (b"not json", None),
        (b'{"known_trip_count":{"n":"many"}}', None),
        (b'{"known_trip_count":[1]}', None),
        (b'{"known_trip_count":{"n":"0"}}', 0),
        (b'{"known_trip_count":{"n":"-7"}}', None),
        (b'{"known_trip_count":{"n":1e999}}', None),
        (b'{"known_trip_count":{"n":"9223372036854775808"}}', None),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", None),
        (b"[1]", None),
        (b"\xff", None),
    ],
)
def test_trip_counts(config: bytes, count: int | None) -> None:
    b = ModuleBuilder()
    start = b.make_tuple(b.constant("s32[]"))
    shape = b.shape(start)

    def condition(c: ModuleBuilder) -> int:
        return c.op("compare", c.get(c.parameter(shape), 0), c.constant("s32[]"))

    b.while_(condition, lambda c: c.make_tuple(c.get(c.parameter(shape), 0)), start)
    proto = module_to_proto(b.build())
    proto.computations[-1].instructions[-1].backend_config = config
    assert reader.module_from_proto(proto, where="x").entry_computation.root_instruction.trip_count == count


def test_a_window_dilation_left_unset_means_one() -> None:
    b = ModuleBuilder()
    b.convolution(b.parameter("f32[1,8,8,2]"), b.parameter("f32[3,3,2,4]"))
    proto = module_to_proto(b.build())
    for dimension in proto.computations[0].instructions[-1].window.dimensions:
        dimension.ClearField("window_dilation")
        dimension.ClearField("base_dilation")
    assert reader.module_from_proto(proto, where="x").computations == b.build().computations


def test_the_real_layout_module(layout_proto: hlo_pb2.HloModuleProto, shared_data: Path) -> None:
    module = reader.module_from_proto(layout_proto, where="layout_module.pb")
    # Layout tuning data wraps its module in field 1, as HLO dumps do.
    assert reader.read_module(shared_data / "real_tpu" / "layout_module.pb") == module
    assert (len(module.computations), module.num_instructions) == (143, 3163)
    assert len({i.opcode for c in module.computations for i in c.instructions}) == 41
    assert max(i.shape.rank for c in module.computations for i in c.instructions) == 5
    edges = sum(
        len(set(i.operands)) + len(set(i.called)) for c in module.computations for i in c.instructions
    )
    assert edges == 5112
    assert module.offsets[-1] == 3163
    by_name = {i.name: i for c in layout_proto.computations for i in c.instructions}
    for computation in module.computations:
        for inst in computation.instructions:
            assert Opcode.from_name(by_name[inst.name].opcode) is inst.opcode
            assert tuple(by_name[inst.name].shape.dimensions) == inst.shape.dimensions


def test_the_real_tile_modules(shared_data: Path) -> None:
    message = tuning_pb2.TuningData()
    message.ParseFromString((shared_data / "real_tpu" / "tile_calibration.pb").read_bytes())
    kernels = [reader.module_from_proto(m.module, where="tile") for m in message.modules]
    assert len(kernels) == 7
    assert all(m.entry_computation.instructions for m in kernels)


@pytest.mark.parametrize(
    "content",
    [
        b"module @jit_step attributes {mhlo.num_replicas = 1 : i32} {\n  func.func public @main() {\n",
        b"#loc = loc(unknown)\nmodule @jit_step {\n",
        b"// a comment\n\nbuiltin.module {\n",
        b"ML\xefR\x0bStableHLO_v1.0.0",
    ],
)
def test_mlir_is_told_from_hlo(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "step.mlir"
    path.write_bytes(content)
    with pytest.raises(
        HloError, match=r"step\.mlir: is MLIR, not HLO .expected HLO, from JAX: jax\.jit"
    ) as caught:
        read_proto(path)
    assert "\n" not in str(caught.value)


def test_text_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = "HloModule module\n\nENTRY module {\n  ROOT x = f32[2] parameter(0)\n}\n"
    plain, marked = tmp_path / "plain.hlo", tmp_path / "marked.hlo"
    plain.write_text(text, "utf-8")
    marked.write_text(text, "utf-8-sig")
    assert read_proto(marked) == read_proto(plain)


def test_text_may_have_strings_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    text = (
        'HloModule m\nENTRY e { ROOT x = f32[2] parameter(0), metadata={source_file="/home/M\xfcller/x.py"} }'
    )
    path.write_text(text, "latin-1")
    assert read_proto(path).name == "m"


def test_hlo_text_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "step.txt"
    path.write_text("HloModule module\n\nENTRY module {\n  ROOT x = f32[2] parameter(0)\n}\n")
    assert read_proto(path).name == "module"


THREE_MEGABYTES = {
    "comments that are not closed": "/* " * 1_000_000,
    "strings that are not closed": '"a\\' * 1_000_000,
    "slashes": "//" * 1_500_000,
    "a name": 'a = f32[8] parameter(0), metadata={op_name="' + "x" * 3_000_000 + '"}',
    "escapes": 'a = f32[8] parameter(0), metadata={op_name="' + '\\"' * 1_500_000 + '"}',
    "parentheses": "a = " + "(" * 3_000_000,
    "operands": "a = f32[8] iota(), iota_dimension=0\n b = tuple(" + "a," * 1_500_000 + "a)",
    "braces": "a = f32[8] parameter(0), dimensions=" + "{" * 1_500_000 + "}" * 1_500_000,
    "axes": "a = f32[" + "1," * 1_500_000 + "1] parameter(0)",
}


@pytest.mark.parametrize("name", THREE_MEGABYTES)
def test_three_megabytes_of_anything_take_less_than_three_seconds(name: str) -> None:
    text = f"HloModule m\n\nENTRY e {{\n{THREE_MEGABYTES[name]}\n}}\n"
    gc.freeze()  # What other tests left in memory is not looked through while this one reads.
    start = time.thread_time()
    with suppress(HloError):
        module_from_text(text, where="m.hlo")
    seconds = time.thread_time() - start
    gc.unfreeze()
    assert seconds < 3.0


def test_a_call_of_large_tuples_costs_no_more_than_its_line() -> None:
    shape = "(" + ",".join(["f32[]"] * 20_000) + ")"
    calls = "".join(f"c{number}=f32[] call(p),to_apply=c\n" for number in range(20_000))
    body = f"c {{ p = {shape} parameter(0)\n ROOT z = f32[] constant(0) }}\n"
    text = f"HloModule m\n\n{body}ENTRY e {{ p = {shape} parameter(0)\n{calls}}}\n"
    start = time.process_time()
    assert module_from_text(text, where="m.hlo").num_instructions == 20_003
    assert time.process_time() - start < 10.0


def test_a_frame_is_refused_while_it_expands() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    zeros = b"\0" * (1 << 24)
    data = b"".join([compressor.compress(zeros) for _ in range(8)] + [compressor.flush()])
    for name, frame in (("m.pb.zst", data), ("m.pb.gz", gzip.compress(zeros * 8))):
        with pytest.raises(HloError, match=f"{name}.*expands to"):
            reader.decompress(frame, where=name)
