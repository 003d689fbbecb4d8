"""Repeatable irregularity: random numbers from mixed keys, and the uneven efficiency of generated code.

Two kernels with the same mix of operations and the same innermost tile extents get the same inner loops,
hence the same inefficiency. The factor is log-normal and keyed on exactly that, never on a kernel's identity.

Normal numbers come from the rational approximations of Cephes (`ndtri`), implemented here because Numba
cannot cache compiled code that calls SciPy's `ndtri`. The two agree to a relative 1e-13
(`tests/hardware/test_noise.py`), but the last digit often differs, so replacing one by the other would change
simulated runtimes. Cephes: Moshier, Methods and programs for mathematical functions (1989);
netlib.org/cephes, file ndtri.c. The coefficients below are that file's, highest power first, with a numerator
P and a denominator Q per interval.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import PackedNest
from costbench.execution.compiled import compiled, compiled_step
from costbench.hashing import GOLDEN_GAMMA, mix
from costbench.target import Target

_ROOT_2_PI = math.sqrt(2.0 * math.pi)
_TAIL = math.exp(-2.0)
# Around 0.5, for |y - 0.5| <= 0.5 - exp(-2).
_P0 = (
    -5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
    1.39312609387279679503e1, -1.23916583867381258016e0,
)  # fmt: skip
_Q0 = (
    1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1,
    -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1,
    1.59056225126211695515e1, -1.18331621121330003142e0,
)  # fmt: skip
# For z = sqrt(-2 ln y) from 2 to 8.
_P1 = (
    4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
    4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
    -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4,
)  # fmt: skip
_Q1 = (
    1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1,
    1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1,
    -3.80806407691578277194e-2, -9.33259480895457427372e-4,
)  # fmt: skip
# For z from 8 to 64.
_P2 = (
    3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0,
    1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2,
    3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9,
)  # fmt: skip
_Q2 = (
    1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0,
    2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4,
    2.89247864745380683936e-6, 6.79019408009981274425e-9,
)  # fmt: skip


@compiled_step
def _polynomial(x: float, coefficients: tuple[float, ...]) -> float:
    """Evaluates a polynomial by Horner's rule; coefficients are given from the highest power down."""
    result = 0.0
    for coefficient in coefficients:
        result = result * x + coefficient
    return result


@compiled_step
def normal_quantile(probability: float) -> float:
    """Returns z with P(Z <= z) = probability, for Z standard normal and a probability inside (0, 1)."""
    in_lower_half = probability <= 1.0 - _TAIL
    y = probability if in_lower_half else 1.0 - probability
    if y > _TAIL:
        y -= 0.5
        square = y * y
        central = y + y * (square * _polynomial(square, _P0) / _polynomial(square, _Q0))
        return central * _ROOT_2_PI
    root = np.sqrt(-2.0 * np.log(y))
    z = 1.0 / root
    if root < 8.0:
        correction = z * _polynomial(z, _P1) / _polynomial(z, _Q1)
    else:
        correction = z * _polynomial(z, _P2) / _polynomial(z, _Q2)
    tail = root - np.log(root) / root - correction
    return float(-tail if in_lower_half else tail)


_11, _32 = np.uint64(11), np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_UNROLL_LIMIT = 8
NUM_STRUCTURES = (_UNROLL_LIMIT + 1) ** 2
_REGULAR = np.ones((2, NUM_STRUCTURES))
COMPUTE, TRANSFER = range(2)
"""Rows of a table of factors."""


@lru_cache(maxsize=1 << 16)
def structure_key(opcodes: tuple[int, ...], chip: str) -> int:
    """Returns a 64-bit key of a kernel's mix of operations: opcodes with counts rounded to powers of two."""
    counts = sorted(Counter(opcodes).items())
    text = chip + "".join(f",{opcode}:{count.bit_length()}" for opcode, count in counts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def codegen_factors(nest: LoopNest, target: Target) -> F64:
    """Returns factors of compute and of transfers for every structure of inner loops, [2, num_structures].

    exp(sd * z) with z standard normal per (operation mix, two innermost output extents up to 8).
    """
    compute_sd, transfer_sd = target.timing.codegen_compute_sd, target.timing.codegen_transfer_sd
    # A kernel without loops is one fixed routine.
    if not (compute_sd or transfer_sd) or not nest.is_tiled:
        return _REGULAR
    opcodes = nest.space.body.opcodes
    operations = tuple(sorted([opcodes[position] for position in nest.kernel.instructions]))
    return _factors(operations, target.name, compute_sd, transfer_sd)


@lru_cache(maxsize=4096)
def _factors(opcodes: tuple[int, ...], chip: str, compute_sd: float, transfer_sd: float) -> F64:
    return _factor_table(np.uint64(structure_key(opcodes, chip)), compute_sd, transfer_sd)


@compiled
def _factor_table(key: np.uint64, compute_sd: float, transfer_sd: float) -> F64:
    table = np.empty((2, NUM_STRUCTURES))
    for structure in range(NUM_STRUCTURES):
        set_factors(table, structure, key, compute_sd, transfer_sd)
    return table


@compiled
def set_factors(table: F64, structure: int, key: np.uint64, compute_sd: float, transfer_sd: float) -> None:
    """Fills in one column of a table of factors, for a `structure_key`."""
    compute, transfer = halves(mix((np.uint64(structure) * GOLDEN_GAMMA) ^ key))
    table[COMPUTE, structure] = np.exp(compute_sd * normal_quantile(compute))
    table[TRANSFER, structure] = np.exp(transfer_sd * normal_quantile(transfer))


@compiled_step
def structure_of(nest: PackedNest, extents: I64) -> int:
    """Returns the number of the structure that a tile size [num_loops] gives the inner loops."""
    last = nest.num_output_loops - 1
    if last < 0:
        return 0
    outer = min(extents[max(0, last - 1)], _UNROLL_LIMIT)
    return int(outer * (_UNROLL_LIMIT + 1) + min(extents[last], _UNROLL_LIMIT))


@compiled
def uniform(key: Any) -> Any:
    """Returns numbers in (0, 1) from mixed keys, 53 bits each."""
    return ((key >> _11) * 1.0 + 0.5) / 2.0**53


@compiled
def halves(key: Any) -> Any:
    """Returns two independent numbers in (0, 1) from each mixed key, 32 bits each."""
    return ((key >> _32) * 1.0 + 0.5) / 2.0**32, ((key & _LOW) * 1.0 + 0.5) / 2.0**32
