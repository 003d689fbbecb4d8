from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import unpacked
from costbench.hardware.noise import (
    codegen_factors,
    halves,
    normal_quantile,
    structure_key,
    structure_of,
    uniform,
)
from costbench.hashing import mix
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import finish
from tests.hardware.machines import machine
from tests.hlo.builder import ModuleBuilder


def test_the_quantile_function_agrees_with_scipy() -> None:
    # Around the middle, in both tails, and where the approximations change: exp(-2) and exp(-32).
    edges = [np.exp(-2), 1 - np.exp(-2), np.exp(-32)]
    near = [edge * (1 + sign * 1e-9) for edge in edges for sign in (-1, 0, 1)]
    tails = [10.0**-k for k in range(1, 300, 7)]
    for probability in [*np.linspace(0.001, 0.999, 997), *near, *tails, 1 - 1e-12]:
        assert normal_quantile(float(probability)) == pytest.approx(ndtri(probability), rel=1e-13, abs=1e-15)


def test_the_median_is_zero_and_the_tails_of_the_quantile_function_mirror_each_other() -> None:
    assert normal_quantile(0.5) == 0.0
    for probability in (0.25, 0.125, 2.0**-30):
        assert normal_quantile(1.0 - probability) == -normal_quantile(probability)


VARIED = machine(codegen_compute_sd=0.2, codegen_transfer_sd=0.1)
KEYS = mix(np.arange(100_000, dtype=np.uint64))


def factors(kernel: Kernel, *extents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    nest = loop_nest(kernel)
    packed = unpacked(nest.words)
    structures = [structure_of(packed, np.array(one, dtype=np.int64)) for one in extents]
    compute, transfer = codegen_factors(nest, VARIED)
    return compute[structures], transfer[structures]


def chain(*opcodes: str, shape: str = "f32[256,512]") -> Kernel:
    b = ModuleBuilder()
    value = b.parameter(shape)
    for opcode in opcodes:
        value = b.op(opcode, value)
    return finish(b, value)


@pytest.mark.parametrize("numbers", [uniform(KEYS), *halves(KEYS)])
def test_mixed_keys_are_uniform(numbers: np.ndarray) -> None:
    assert numbers.min() > 0.0
    assert numbers.max() < 1.0
    # Mean and variance of 100,000 uniform numbers, to five standard errors.
    assert numbers.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / 1e5))
    assert numbers.var() == pytest.approx(1 / 12, abs=5 * np.sqrt(1 / 180 / 1e5))


def test_the_halves_are_independent() -> None:
    high, low = halves(KEYS)
    assert abs(np.corrcoef(high, low)[0, 1]) < 5 / np.sqrt(1e5)


def test_extents_from_eight_on_unroll_alike() -> None:
    for values in factors(small.unary("f32[8,4,256,2048]"), (1, 1, 8, 8), (8, 4, 32, 16), (1, 1, 7, 8)):
        assert values[0] == values[1]
        assert values[0] != values[2]


def test_the_mix_of_operations_decides_not_the_kernel() -> None:
    base = factors(chain("negate", "negate", "tanh"), (4, 4))
    # Other shapes, other order, three instead of two of a kind: the same mix.
    same = factors(chain("tanh", "negate", "negate", "negate", shape="f32[64,1024]"), (4, 4))
    other = factors(chain("negate", "tanh"), (4, 4))
    assert base == same
    assert base[0] != other[0]
    assert base[1] != other[1]


def test_chips_generate_different_code() -> None:
    v2, v3 = (codegen_factors(loop_nest(small.unary()), load_target(chip)) for chip in ("tpu_v2", "tpu_v3"))
    assert (v2 != v3).mean() > 0.9


def test_counts_are_rounded_to_powers_of_two() -> None:
    assert structure_key((3, 3, 7), "tpu_v3") == structure_key((3, 7, 3, 3), "tpu_v3")
    assert structure_key((3, 3, 7), "tpu_v3") != structure_key((3, 3, 3, 3, 7), "tpu_v3")
    assert structure_key((3, 3, 7), "tpu_v3") != structure_key((3, 3, 8), "tpu_v3")


def test_the_spread_is_log_normal() -> None:
    kernels = [chain(*opcodes) for opcodes in (("negate",), ("tanh",), ("negate", "tanh"), ("sqrt",))]
    tiles = [(a, b) for a in range(1, 9) for b in (1, 2, 4)]
    compute, transfer = (
        np.log(np.concatenate(found)) for found in zip(*(factors(k, *tiles) for k in kernels), strict=True)
    )
    # 96 structures: standard errors of the mean and of the deviation are sd / sqrt(96) and sd / sqrt(192).
    for logs, deviation in ((compute, 0.2), (transfer, 0.1)):
        assert abs(logs.mean()) < 4 * deviation / np.sqrt(96)
        assert logs.std() == pytest.approx(deviation, abs=4 * deviation / np.sqrt(192))
    assert abs(np.corrcoef(compute, transfer)[0, 1]) < 0.4


def test_regular_machines_and_kernels_without_tiles_have_none() -> None:
    nest = loop_nest(small.unary())
    assert (codegen_factors(nest, machine()) == 1.0).all()
    assert (codegen_factors(loop_nest(small.fft()), VARIED) == 1.0).all()


def test_vectors_have_structure_too() -> None:
    found, _ = factors(small.vector(), (1,), (2,), (10,))
    assert len(set(found.tolist())) == 3
