from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layout_compiler import LayoutCompiler, compile_with_layouts, peak_bytes
from costbench.arrays import F64, I16, I64
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.layout.space import layout_space
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.generation import summaries_of
from costbench.datasets.layout_generation import (
    ConfigRuns,
    GeneticParams,
    LayoutParams,
    LayoutTask,
    search_genetically,
    search_randomly,
)
from costbench.datasets.layout_pricing import ProgramPricer
from costbench.datasets.layout_shards import config_features, open_layout_shard, read_layout_program
from costbench.datasets.record_types import DEFAULT, GENETIC, RANDOM
from costbench.datasets.storage import Shard
from costbench.features.tpugraphs_graphs import layout_graph_of
from costbench.hardware.device import Device
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.target import load_target
from tests.compiler.small_layouts import layout_features, space_of, two_convolutions
from tests.hlo.builder import ModuleBuilder

TARGET = load_target("tpu_v3")


def task(
    folder: Path, module: HloModule | None = None, chips: tuple[str, ...] = ("tpu_v3",), **params: object
) -> LayoutTask:
    return LayoutTask(
        name="small",
        application="tests",
        family="xla",
        program=module_to_bytes(module or two_convolutions()),
        targets=tuple(map(load_target, chips)),
        params=LayoutParams(**{"max_configs": 24, **params}),  # type: ignore[arg-type]
        folder=folder,
    )


@pytest.mark.parametrize("strategy", ["random", "genetic", "both"])
def test_a_shard_is_complete_and_repeatable(tmp_path: Path, strategy: str) -> None:
    first, second = (task(tmp_path / name, strategy=strategy) for name in ("a", "b"))
    assert summaries_of(first) is None
    first.make()
    second.make()
    assert summaries_of(first) is not None
    assert first.paths[0].read_bytes() == second.paths[0].read_bytes()
    shard = Shard.open(first.paths[0])
    space = space_of(two_convolutions())
    configs = np.asarray(shard["config_options"])
    runs = 47 if strategy == "both" else 24
    assert len(configs) == runs - int(shard.metadata["num_failed"])
    assert space.legal(configs).all()
    assert (configs[0] == space.default).all()
    assert shard.metadata["default_runtime_ns"] == shard["config_runtime_ns"][0]
    sources = set(np.asarray(shard["config_source"])[1:].tolist())
    assert sources == {"random": {1}, "genetic": {2}, "both": {1, 2}}[strategy]
    (summary,) = summaries_of(first) or ()
    assert (summary.task, summary.num_samples) == ("layout", len(configs))


def test_a_shard_of_other_inputs_is_not_done(tmp_path: Path) -> None:
    made = task(tmp_path)
    made.make()
    assert summaries_of(replace(made, params=replace(made.params, seed=1))) is None
    assert summaries_of(replace(made, family="nlp")) is None
    assert summaries_of(replace(made, targets=(load_target("tpu_v2"),))) is None


def test_what_is_read_back_can_be_exported(tmp_path: Path) -> None:
    made = task(tmp_path)
    made.make()
    shard = open_layout_shard(made.paths[0])
    space = layout_space(module_from_bytes(made.program, where="small"))
    configs = np.asarray(shard["config_options"])
    assert (config_features(shard) == layout_features(space, configs)).all()
    assert (config_features(shard, 2, 5) == layout_features(space, configs[2:5])).all()
    program = read_layout_program(made.paths[0])
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
    shard = Shard.open(made.paths[0])
    assert shard["config_options"].shape == (1, 0)
    assert shard["option_layout"].shape == (0, 18)


def test_chips_that_are_measured_together_have_the_shards_of_each_alone(tmp_path: Path) -> None:
    together = task(tmp_path / "both", chips=("tpu_v2", "tpu_v3"))
    together.make()
    for chip, path in zip(("tpu_v2", "tpu_v3"), together.paths, strict=True):
        alone = task(tmp_path / chip, chips=(chip,))
        alone.make()
        assert alone.paths[0].read_bytes() == path.read_bytes()
    assert [summary.chip for summary in summaries_of(together) or ()] == ["tpu_v2", "tpu_v3"]


def test_searches_are_kept_apart_and_failures_counted(tmp_path: Path) -> None:
    made = task(tmp_path, memory_gib=1e-6)
    made.make()
    shard = Shard.open(made.paths[0])
    source = np.asarray(shard["config_source"])
    assert source[0] == 0
    failed = [int(str(shard.metadata[f"num_failed_{search}"])) for search in ("random", "genetic")]
    # The default and 23 random runs, then 23 of the genetic search.
    assert [np.count_nonzero(source == value) for value in (1, 2)] == [23 - failed[0], 23 - failed[1]]
    assert int(str(shard.metadata["num_failed"])) == sum(failed) > 0


def test_a_runtime_is_the_sum_over_kernels_but_for_the_noise_of_a_run() -> None:
    space = space_of(two_convolutions())
    pricer = ProgramPricer(space, [Device(TARGET)], memory_gib=16.0)
    configs = space.sample(np.random.default_rng(0), 30)
    first, second = (pricer.measure(configs, np.full(30, run)) for run in (0, 1))
    assert (first == pricer.measure(configs, np.zeros(30, np.int64))).all()
    total = pricer.priced(configs).total_ns[:, 0]
    for measured in (first, second):
        assert 0.0 < np.abs(measured / total - 1.0).max() < 6 * 0.0004
    assert (first != second).any()
    assert pricer.num_programs() < 30


def test_prices_are_those_of_kernels_measured_one_by_one() -> None:
    space = space_of(two_convolutions())
    pricer = ProgramPricer(space, [Device(TARGET)], memory_gib=16.0)
    configs = space.sample(np.random.default_rng(1), 12)
    priced = pricer.priced(configs)
    model = AnalyticalModel(TARGET.architecture)
    for config, total, num_bytes in zip(configs, priced.total_ns[:, 0], priced.num_bytes, strict=True):
        wanted = 0.0
        program = compile_with_layouts(space, config, "p")
        for kernel in program.kernels:
            nest = loop_nest(kernel)
            extents = model.choose(nest_tile_space(nest, TARGET.architecture))
            measured = Device(TARGET).measure_nest(nest, extents[None])
            assert not measured.failed[0]
            wanted += kernel.trip_count * float(measured.runtime_ns[0])
        assert total == wanted
        (part,) = LayoutCompiler(space).compile(config)
        assert num_bytes == peak_bytes(part)


def test_a_config_that_needs_too_much_memory_fails_but_the_default_does_not() -> None:
    space = space_of(two_convolutions())
    pricer = ProgramPricer(space, [Device(TARGET)], memory_gib=1e-6)
    configs = np.concatenate([space.default[None], space.sample(np.random.default_rng(0), 30)])
    measured = pricer.measure(configs, np.zeros(31, np.int64))
    needed = pricer.priced(configs).num_bytes
    assert np.isfinite(measured[0])
    assert (np.isfinite(measured) == (needed <= needed[0])).all()
    assert not np.isfinite(measured).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_configs": 1}, "max_configs"),
        ({"strategy": "best"}, "strategy"),
        ({"max_runs": 0}, "max_runs"),
        ({"memory_gib": 0}, "memory"),
    ],
)
def test_impossible_parameters_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LayoutParams(**fields)  # type: ignore[arg-type]


SPACE = space_of(two_convolutions())
NUM_CONFIGS = int(SPACE.num_choices.prod())


def distance(configs: I16, runs: I64 | None = None) -> F64:
    """Runtime that is least at the last option of every node; every further run takes 1,000 ns longer; the
    first node's option 3 fails.
    """
    again = 0 if runs is None else 1000.0 * runs
    runtime = 100.0 + again + (SPACE.num_choices - 1 - configs).sum(axis=1)
    return np.where(configs[:, 0] == 3, np.inf, runtime.astype(np.float64))


def searched(genetic: bool, limit: int, seed: int = 0, max_runs: int = 1) -> ConfigRuns:
    runs = ConfigRuns(SPACE, distance, max_runs)
    rng = np.random.default_rng(seed)
    if genetic:
        search_genetically(SPACE, runs, rng, limit, GeneticParams(population=8))
    else:
        search_randomly(SPACE, runs, rng, limit)
    return runs


@pytest.mark.parametrize("genetic", [False, True])
def test_the_default_comes_first_and_nothing_twice_if_one_run_is_allowed(genetic: bool) -> None:
    runs = searched(genetic, 60)
    columns = runs.columns()
    configs, source = columns["config_options"], columns["config_source"]
    assert len(runs) == 60
    assert len(configs) + runs.failed.total() == 60
    assert runs.failed == {GENETIC if genetic else RANDOM: 60 - len(configs)}
    assert len(configs) < 60
    assert (configs[0] == SPACE.default).all()
    assert source.tolist() == [DEFAULT] + [GENETIC if genetic else RANDOM] * (len(configs) - 1)
    assert len(np.unique(configs, axis=0)) == len(configs)
    assert (columns["config_runtime_ns"] == distance(configs.astype(np.int16))).all()


@pytest.mark.parametrize("genetic", [False, True])
def test_a_search_is_repeatable(genetic: bool) -> None:
    first, second, other = (searched(genetic, 40, seed).columns()["config_options"] for seed in (1, 1, 2))
    assert first.tobytes() == second.tobytes() != other.tobytes()


def test_the_genetic_search_goes_where_it_is_fast() -> None:
    evolved, sampled = (
        searched(genetic, 60).columns()["config_runtime_ns"].astype(np.int64) for genetic in (True, False)
    )
    assert evolved[0] == sampled[0] == 100 + (SPACE.num_choices - 1).sum()
    assert evolved.min() <= 101
    assert np.median(evolved[-30:]) < np.median(sampled[-30:])


@pytest.mark.parametrize("genetic", [False, True])
def test_a_search_ends_when_hardly_a_config_is_left(genetic: bool) -> None:
    runs = searched(genetic, 10 * NUM_CONFIGS)
    assert NUM_CONFIGS / 2 < len(runs) <= NUM_CONFIGS


@pytest.mark.parametrize("genetic", [False, True])
def test_a_config_met_again_is_measured_again_with_other_noise_up_to_a_limit(genetic: bool) -> None:
    columns = searched(genetic, 10 * NUM_CONFIGS, max_runs=3).columns()
    configs, runtime = columns["config_options"].astype(np.int16), columns["config_runtime_ns"]
    _, inverse, counts = np.unique(configs, axis=0, return_inverse=True, return_counts=True)
    assert counts.max() == 3
    for number in np.flatnonzero(counts > 1).tolist():
        rows = np.flatnonzero(inverse.reshape(-1) == number)
        further = [1000 * run for run in range(len(rows))]
        assert (runtime[rows] - distance(configs[rows])).tolist() == further


def test_both_searches_run_the_default_once_between_them() -> None:
    runs = ConfigRuns(SPACE, distance, 1)
    search_randomly(SPACE, runs, np.random.default_rng(0), 20)
    search_genetically(SPACE, runs, np.random.default_rng(1), 40, GeneticParams(population=4))
    columns = runs.columns()
    at_default = (columns["config_options"] == SPACE.default).all(axis=1)
    assert at_default.tolist() == [True] + [False] * (len(at_default) - 1)
    # A config that both searches meet has run before when the second one measures it.
    again = columns["config_runtime_ns"].astype(np.int64) >= 1000
    assert (columns["config_source"][again] == GENETIC).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"population": 1}, "population"), ({"mutations": 0}, "mutations"), ({"crossover": 1.5}, "crossover")],
)
def test_impossible_parameters_of_the_search_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GeneticParams(**fields)  # type: ignore[arg-type]
