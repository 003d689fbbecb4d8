"""Kernels that cannot be lowered or do not fit the scratchpad."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.arrays import I16
from costbench.compiler.layout.compile import KernelPool, PackedCompiler
from costbench.compiler.lowering.loop_nest import LoweredKernels
from costbench.datasets.layout_pricing import ProgramPricer
from costbench.errors import UnsupportedKernelError
from costbench.hardware.device import Device
from costbench.target import Target, load_target
from tests.compiler.small_layouts import space_of, two_convolutions

TARGET = load_target("tpu_v3")
SPACE = space_of(two_convolutions())
CONFIGS = SPACE.sample(np.random.default_rng(3), 8)


def pricer(target: Target = TARGET) -> ProgramPricer:
    return ProgramPricer(SPACE, [Device(target)], memory_gib=16.0)


def default_kernels_alone(configs: I16) -> list[bool]:
    """Whether each config has no other kernels than the default."""
    compiler = PackedCompiler(SPACE)
    kernels = [
        {one for part in compiler.compile(config) for one in part.hashes.tolist()}
        for config in np.concatenate([SPACE.default[None], configs])
    ]
    return [numbers <= kernels[0] for numbers in kernels[1:]]


def test_kernels_are_lowered_one_by_one_where_that_fails_together(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = pricer().priced(CONFIGS).total_ns
    ours, lower = pricer(), KernelPool.lower

    def failing(pool: KernelPool) -> tuple[LoweredKernels, list[str]]:
        if len(pool) > 1:
            raise UnsupportedKernelError("one of them")
        return lower(pool)

    monkeypatch.setattr(KernelPool, "lower", failing)
    assert (ours.priced(CONFIGS).total_ns == wanted).all()


def test_a_kernel_that_cannot_be_lowered_fails_its_config_but_not_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = pricer()

    def failing(pool: KernelPool) -> tuple[LoweredKernels, list[str]]:
        raise UnsupportedKernelError("all of them")

    monkeypatch.setattr(KernelPool, "lower", failing)
    configs = np.concatenate([SPACE.default[None], CONFIGS])
    alike = default_kernels_alone(configs)
    assert alike[0]
    assert not all(alike)
    assert np.isfinite(ours.priced(configs).total_ns[:, 0]).tolist() == alike
    with pytest.raises(UnsupportedKernelError, match="all of them"):
        pricer()


def test_the_default_gets_the_scratchpad_that_it_needs_and_others_fail() -> None:
    small = replace(TARGET, architecture=replace(TARGET.architecture, scratchpad_bytes=1 << 12))
    ours = pricer(small)
    assert np.isfinite(ours.default.total_ns).all()
    finite = np.isfinite(ours.priced(CONFIGS).total_ns[:, 0])
    assert finite.tolist() == default_kernels_alone(CONFIGS)
