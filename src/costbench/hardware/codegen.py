"""Generated code is less regular than a formula: a factor per structure, the same wherever it occurs.

Two kernels with the same mix of operations and the same innermost tile extents get the same inner loops,
hence the same inefficiency. The factor is log-normal and keyed on exactly that: never on a kernel's
identity.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from costbench.compiler.loop_nest import LoopNest
from costbench.target import Target

FloatArray = npt.NDArray[np.float64]
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_UNROLL_LIMIT = 8


def structure_key(nest: LoopNest, chip: str) -> int:
    """64-bit key of a kernel's mix of operations: opcodes with counts rounded to powers of two."""
    counts = Counter(nest.kernel.instruction(p).opcode for p in nest.kernel.instructions)
    text = chip + "".join(f",{int(op)}:{count.bit_length()}" for op, count in sorted(counts.items()))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def codegen_factors(
    nest: LoopNest, extents: npt.NDArray[np.int64], target: Target
) -> tuple[FloatArray | float, FloatArray | float]:
    """Factors of compute and of transfers.

    exp(sd * z) with z standard normal per (operation mix, two innermost output extents up to 8), each [n].
    """
    deviations = (target.timing.codegen_compute_sd, target.timing.codegen_transfer_sd)
    if not any(deviations) or not nest.is_tiled:
        return 1.0, 1.0
    first = max(0, nest.num_output_loops - 2)
    unroll = np.minimum(extents[:, first : nest.num_output_loops], _UNROLL_LIMIT)
    structure = unroll[:, 0] * (_UNROLL_LIMIT + 1) + unroll[:, -1]
    # The few structures that occur are mixed once each.
    table = np.arange((_UNROLL_LIMIT + 1) ** 2, dtype=np.uint64) * _MIX[0]
    compute, transfer = halves(mix(table ^ np.uint64(structure_key(nest, target.name))))
    return np.exp(deviations[0] * ndtri(compute))[structure], np.exp(deviations[1] * ndtri(transfer))[
        structure
    ]


def mix(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection that spreads every bit."""
    key = key + _MIX[0]
    key = (key ^ (key >> np.uint64(30))) * _MIX[1]
    key = (key ^ (key >> np.uint64(27))) * _MIX[2]
    return key ^ (key >> np.uint64(31))


def uniform(key: npt.NDArray[np.uint64]) -> FloatArray:
    """Numbers in (0, 1) from mixed keys, 53 bits each."""
    result: FloatArray = ((key >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
    return result


def halves(key: npt.NDArray[np.uint64]) -> tuple[FloatArray, FloatArray]:
    """Two independent numbers in (0, 1) from each mixed key, 32 bits each."""
    high = (key >> np.uint64(32)).astype(np.float64)
    low = (key & np.uint64(2**32 - 1)).astype(np.float64)
    return (high + 0.5) / 2.0**32, (low + 0.5) / 2.0**32
