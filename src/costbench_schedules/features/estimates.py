"""What the analytical model of crop2024 says of programs, as features of a learned model."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costbench.arrays import F32, F64

PARTS = ("compute", "L2", "L3", "RAM", "branches")
_SIMPLER = ("throughput", "roofline", "instructions")


def estimate_features(estimates: Mapping[str, F64], lanes: F64) -> F32:
    """Returns features without a unit, float32 [n, F].

    These are the shares of the parts in the total, the logarithms of the ratios of simpler models' and of
    other processors' times to it, and the base-2 logarithms of executed lanes by kind of operation, relative
    to the most frequent kind.

    Args:
        estimates: [n] by name, `total` and some of the others; see `networks.estimating.ProgramEstimates.of`.
        lanes: [n, kinds], executed lanes.
    """
    total = estimates["total"]
    shares = [estimates[name] / total for name in PARTS if name in estimates]
    ratios = [
        np.log((1.0 + values) / total)
        for name, values in estimates.items()
        if name in _SIMPLER or name.startswith("total@")
    ]
    most = lanes.max(axis=1, keepdims=True)
    logarithms = np.log2((1.0 + lanes) / (1.0 + most))
    return np.column_stack([*shares, *ratios, logarithms]).astype(np.float32)
