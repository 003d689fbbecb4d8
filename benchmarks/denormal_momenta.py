"""What units without gradients cost a step of Muon: denormal floats, flushed and (baseline) not.

    python -m benchmarks.denormal_momenta [--repeats 50]

A momentum shrinks by 0.95 a step where gradients are zero, below 1e-38 after 1,700 steps. Each line is of the
matrices of four layers, [64, 128], of which some rows are that small: milliseconds of making them orthogonal
as they are, with denormals flushed as trainings have it, and the ratio. Results are equal to the bit, or it
fails.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext

import torch

from costbench.models.execution import flush_denormals
from costbench.training.muon import orthogonalize

_SHAPE = (4, 64, 128)
_TINY = 1e-20
"""Its square, an entry of X X^T, is denormal."""


def milliseconds(matrices: torch.Tensor, repeats: int, *, flushed: bool) -> tuple[float, torch.Tensor]:
    """Returns the time of `orthogonalize`, the mean of the repeats, and what it returns."""
    with flush_denormals() if flushed else nullcontext():
        result = orthogonalize(matrices)
        started = time.perf_counter()
        for _ in range(repeats):
            orthogonalize(matrices)
        return (time.perf_counter() - started) / repeats * 1e3, result


def main() -> None:
    """Prints a line for each number of rows."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=50, help="repeats of each (50)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    for rows in (0, 4, 32):
        matrices = torch.randn(_SHAPE, generator=torch.Generator().manual_seed(0))
        matrices[:, :rows] *= _TINY
        (baseline, before), (ours, after) = (
            milliseconds(matrices, repeats, flushed=flushed) for flushed in (False, True)
        )
        if not torch.equal(before, after):
            raise SystemExit(f"{rows} tiny rows: results differ")
        print(f"{rows:2} tiny rows: {baseline:6.2f} ms, flushed {ours:6.2f} ms, ratio {baseline / ours:.1f}")


if __name__ == "__main__":
    main()
