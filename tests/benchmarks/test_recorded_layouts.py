"""Recorded runs of a small program, made from its own layout options."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.layout_compiler import LayoutCompiler
from benchmarks.recorded_layouts import RegularPricer, agreement, configs_of, plateaus_of
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.datasets.tpugraphs.raw import TuningProgram
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

V3 = load_target("tpu_v3")


def two_dots() -> LayoutSpace:
    b = ModuleBuilder()
    x = b.parameter("f32[64,256]")
    hidden = b.op("tanh", b.dot(x, b.parameter("f32[256,512]")), shape="f32[64,512]")
    return layout_space(b.build(b.dot(hidden, b.parameter("f32[512,128]"))))


def recorded(space: LayoutSpace, configs: np.ndarray, runtime_ns: list[int]) -> TuningProgram:
    """The configs as a recorded file holds them."""
    module = space.module
    layouts = np.stack(
        [
            np.stack([option_features(n)[k].reshape(3, 6) for n, k in zip(space.nodes, c, strict=True)])
            for c in configs
        ]
    )
    return TuningProgram(
        module=module,
        node_config_ids=np.array([module.offsets[n.computation] + n.position for n in space.nodes]),
        minor_to_major=layouts.astype(np.int64),
        runtime_ns=np.array(runtime_ns, dtype=np.int64),
        is_default=(configs == space.default).all(axis=1),
        num_failed=0,
        fingerprint=1,
    )


def every_step(space: LayoutSpace) -> np.ndarray:
    """The default and all configs that differ from it in one node."""
    found = [space.default]
    for place, count in enumerate(space.num_choices):
        for option in range(1, int(count)):
            config = space.default.copy()
            config[place] = option
            found.append(config)
    return np.stack(found)


def test_recorded_layouts_are_found_among_the_options() -> None:
    space = two_dots()
    configs = every_step(space)
    assert len(configs) > 3
    program = recorded(space, configs, [1] * len(configs))
    found, num_nodes, num_missing = configs_of(program, space)
    assert np.array_equal(found, configs)
    assert (num_nodes, num_missing) == (len(space.nodes), 0)


def test_layouts_that_are_no_option_count_as_missing() -> None:
    space = two_dots()
    program = recorded(space, every_step(space)[:2], [1, 2])
    program.minor_to_major[1, 0, 0, :2] = [7, 7]
    found, _, num_missing = configs_of(program, space)
    assert num_missing == 1
    assert found[1, 0] == 0


def test_simulated_runtimes_rank_themselves() -> None:
    space = two_dots()
    configs = every_step(space)
    compiler = LayoutCompiler(space)
    pricer = RegularPricer(compiler, V3)
    totals = [pricer.total_ns(compiler.compile(config)) for config in configs]
    assert min(totals) > 0
    same = agreement(recorded(space, configs, [round(1000 * total) for total in totals]), V3)
    assert same.kendall_tau == pytest.approx(1.0)
    # Runs are in picoseconds here.
    assert same.mape == pytest.approx(99.9)
    assert sum(same.plateaus) == len(configs)
    assert same.num_runs == len(configs)
    assert same.simulated_ms == pytest.approx(totals[0] / 1e6)
    assert same.recorded_ms == pytest.approx(round(1000 * totals[0]) / 1e6)
    assert same.simulated_spread == pytest.approx(max(totals) / min(totals))
    assert same.longest_kernels[0] * 1e6 <= totals[0]


def test_plateaus_are_parted_by_steps_above_the_noise() -> None:
    # Steps of 0.05% and 2%; three runs are the fastest.
    runtime = np.array([1000.5, 1021.0, 1000.0, 1000.9, 1021.2])
    assert plateaus_of(runtime).tolist() == [0, 1, 0, 0, 1]
