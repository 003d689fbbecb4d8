from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.layout.space import layout_features, layout_space
from costbench.datasets.layout.generation import LayoutParams, LayoutTask
from costbench.datasets.layout.pricing import ProgramPricer
from costbench.datasets.layout.programs import config_features, open_layout_shard, read_layout_program
from costbench.datasets.storage import verify_shard
from costbench.features.tpugraphs_graphs import layout_graph_of
from costbench.hardware.device import Device
from costbench.hlo.builder import ModuleBuilder
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.writer import module_to_bytes
from costbench.target import load_target
from tests.compiler.small_layouts import space_of, two_convolutions

TARGET = load_target("tpu_v3")


def task(folder: Path, module: HloModule | None = None, **params: object) -> LayoutTask:
    return LayoutTask(
        name="small",
        application="tests",
        program=module_to_bytes(module or two_convolutions()),
        target=TARGET,
        params=LayoutParams(**{"max_configs": 24, **params}),  # type: ignore[arg-type]
        folder=folder,
    )


@pytest.mark.parametrize("strategy", ["random", "genetic", "both"])
def test_a_shard_is_complete_and_repeatable(tmp_path: Path, strategy: str) -> None:
    first, second = (task(tmp_path / name, strategy=strategy) for name in ("a", "b"))
    assert not first.is_done()
    first.make()
    second.make()
    assert first.is_done()
    assert first.path.read_bytes() == second.path.read_bytes()
    shard = verify_shard(first.path)
    space = space_of(two_convolutions())
    configs = np.asarray(shard["config_options"])
    assert len(configs) == 24 - int(shard.metadata["num_failed"])
    assert space.legal(configs).all()
    assert (configs[0] == space.default).all()
    assert shard.metadata["default_runtime_ns"] == shard["config_runtime_ns"][0]
    found = set(np.asarray(shard["config_source"])[1:].tolist())
    assert found == {"random": {1}, "genetic": {2}, "both": {1, 2}}[strategy]
    (summary,) = first.summaries()
    assert (summary.task, summary.num_samples) == ("layout", len(configs))


def test_a_shard_of_other_inputs_is_not_done(tmp_path: Path) -> None:
    made = task(tmp_path)
    made.make()
    assert not replace(made, params=replace(made.params, seed=1)).is_done()
    assert not replace(made, target=load_target("tpu_v2")).is_done()


def test_what_is_read_back_can_be_exported(tmp_path: Path) -> None:
    made = task(tmp_path)
    made.make()
    shard = open_layout_shard(made.path)
    space = layout_space(module_from_bytes(made.program, where="small"))
    configs = np.asarray(shard["config_options"])
    assert (config_features(shard) == layout_features(space, configs)).all()
    assert (config_features(shard, 2, 5) == layout_features(space, configs[2:5])).all()
    program = read_layout_program(made.path)
    body = program.module.entry_computation.instructions
    offset = program.module.offsets[program.module.entry]
    opcodes = [body[i - offset].opcode.xla_name for i in program.node_config_ids.tolist()]
    assert opcodes == ["convolution", "convolution", "reshape"]
    assert program.normalizer_ns == shard.metadata["default_runtime_ns"]
    assert program.is_default.tolist() == [True] + [False] * (len(configs) - 1)
    graph = layout_graph_of(program, "small", "layout:xla:random")
    assert graph.config_features(slice(None)).shape == (len(configs), 3, 18)


def test_a_program_without_choices_has_its_default_alone(tmp_path: Path) -> None:
    b = ModuleBuilder()
    b.op("negate", b.parameter("f32[64,128]"))
    made = task(tmp_path, b.build())
    made.make()
    shard = verify_shard(made.path)
    assert shard["config_options"].shape == (1, 0)
    assert shard["option_layout"].shape == (0, 18)


def test_a_runtime_is_the_sum_over_kernels_but_for_the_noise_of_a_run() -> None:
    space = space_of(two_convolutions())
    pricer = ProgramPricer(space, Device(TARGET), memory_gib=16.0)
    configs = space.sample(np.random.default_rng(0), 30)
    measured = pricer.measure(configs)
    assert (measured == pricer.measure(configs)).all()
    ratio = measured / np.array([pricer.priced(config).total_ns for config in configs])
    assert 0.0 < np.abs(ratio - 1.0).max() < 6 * 0.0004
    assert pricer.num_programs < 30


def test_a_config_that_needs_too_much_memory_fails_but_the_default_does_not() -> None:
    space = space_of(two_convolutions())
    pricer = ProgramPricer(space, Device(TARGET), memory_gib=1e-6)
    configs = np.concatenate([space.default[None], space.sample(np.random.default_rng(0), 30)])
    measured = pricer.measure(configs)
    needed = np.array([pricer.priced(config).num_bytes for config in configs])
    assert np.isfinite(measured[0])
    assert (np.isfinite(measured) == (needed <= needed[0])).all()
    assert not np.isfinite(measured).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"max_configs": 1}, "max_configs"), ({"strategy": "best"}, "strategy"), ({"memory_gib": 0}, "memory")],
)
def test_impossible_parameters_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LayoutParams(**fields)  # type: ignore[arg-type]
