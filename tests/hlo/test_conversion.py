from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.hlo.conversion import module_from_proto, module_to_bytes, module_to_proto
from costbench.hlo.instruction import GatherDimensions, ScatterDimensions
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes, read_module
from tests.hlo.builder import ModuleBuilder
from tests.hlo.random_modules import modules


@given(modules())
def test_reading_what_was_written_gives_an_equal_module(module: HloModule) -> None:
    data = module_to_bytes(module)
    assert module_from_bytes(data, where="x") == module
    assert module_to_bytes(module_from_bytes(data, where="x")) == data


def test_batching_dimensions_of_gathers_and_scatters_survive() -> None:
    b = ModuleBuilder()
    x, i = b.parameter("f32[4,8,16]"), b.parameter("s32[4,5]")
    gather = GatherDimensions((2,), (1,), (1,), 2, (1, 1, 16), (0,), (0,))
    rows = b.op("gather", x, i, shape="f32[4,5,16]", gather=gather)
    scatter = ScatterDimensions((2,), (1,), (1,), 2, (0,), (0,))
    add = (b.function("add", b.shape(x)),)
    module = b.build(b.op("scatter", x, i, rows, shape="f32[4,8,16]", scatter=scatter, called=add))
    assert module_from_bytes(module_to_bytes(module), where="x") == module


def test_literals_survive_untouched() -> None:
    b = ModuleBuilder()
    literal = b"\x0a\x02\x10\x0b\x42\x04\x00\x00\x80\x3f"  # a shape, and a field that the subset leaves out
    b.op("constant", shape="f32[]", literal=literal)
    assert module_from_bytes(module_to_bytes(b.build()), where="x") == b.build()


def test_ids_are_dense_and_the_signature_is_the_entry_computations() -> None:
    b = ModuleBuilder("m")
    b.reduce(b.op("add", b.parameter("f32[2,3]"), b.parameter("f32[2,3]")), (0,))
    proto = module_to_proto(b.build())
    ids = [inst.id for computation in proto.computations for inst in computation.instructions]
    assert ids == list(range(1, len(ids) + 1))
    assert [tuple(s.dimensions) for s in proto.host_program_shape.parameters] == [(2, 3), (2, 3)]
    assert tuple(proto.host_program_shape.result.dimensions) == (3,)
    assert proto.entry_computation_name == "main"


def test_the_real_layout_module_survives(shared_data: Path) -> None:
    message = tuning_pb2.ModuleTuningData()
    message.ParseFromString((shared_data / "real_tpu" / "layout_module.pb").read_bytes())
    module = module_from_proto(message.module, where="layout")
    assert module_from_bytes(module_to_bytes(module), where="again") == module


def test_a_program_of_the_corpus_survives(repository: Path) -> None:
    files = sorted((repository / "data" / "programs").glob("*.hlo.pb.zst"), key=lambda f: f.stat().st_size)
    if not files:
        pytest.skip("no programs in data/programs")
    for file in files[:5]:
        module = read_module(file)
        assert module_from_bytes(module_to_bytes(module), where=file.name) == module
