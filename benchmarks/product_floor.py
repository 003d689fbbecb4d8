"""How far a training step is from what its matrix products alone would take on this processor.

The floor is the number of floating-point operations of the products of a step (torch counts them) at the
rate of one product as narrow as they are, by the faster of the two matrix libraries. No form of the same
network with the same products can be faster. Times are CPU times of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from costbench.models.execution import apply_execution
from costbench.models.graph_batch import KernelSamples
from costbench.models.spec import Execution

_ROWS, _REPEATS = 8192, 40
_COUNTED = Execution(compiled=False)
_LIBRARIES = (Execution(onednn_matmul=True), Execution(onednn_matmul=False))


def product_rate(width: int) -> float:
    """Operations per second of [8192, width] times [width, width], the better library's best of five."""
    rows, weight = torch.randn(_ROWS, width), torch.randn(width, width)
    best = 0.0
    for execution in _LIBRARIES:
        with apply_execution(execution):
            for _ in range(5):
                started = time.process_time()
                for _ in range(_REPEATS):
                    rows @ weight
                seconds = time.process_time() - started
                best = max(best, 2.0 * _ROWS * width * width * _REPEATS / seconds)
    return best


def measure_floor(
    step: Callable[[Sequence[KernelSamples]], None],
    batches: Sequence[Sequence[KernelSamples]],
    width: int,
    seconds: float,
) -> dict[str, float]:
    """Returns the rate of products, and the share of a step that they would take at that rate.

    Args:
        step: trains on a batch. Products inside fused operators (torch's LSTM) are not counted.
        batches: on which a step takes `seconds` on average.
        width: hidden width of the network.
        seconds: see `batches`.
    """
    # Torch counts what torch multiplies: the same products, not those of compiled passes.
    with apply_execution(_COUNTED), FlopCounterMode(display=False) as counter:
        for batch in batches:
            step(batch)
    rate = product_rate(width)
    operations = counter.get_total_flops() / len(batches)
    return {"product_gflop_per_s": rate / 1e9, "product_share": operations / rate / seconds}
