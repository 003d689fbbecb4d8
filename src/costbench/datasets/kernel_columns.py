"""Turns kernels into columns of a shard: references into the compiled program, lists laid end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from costbench.arrays import I64, U8, AnyArray
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays


def kernel_columns(kernels: Sequence[Kernel], fingerprints: Sequence[str]) -> dict[str, AnyArray]:
    """Returns the columns that say which kernels a shard is about (see `record_types`).

    Args:
        kernels: k of them.
        fingerprints: of the kernels, 32 hexadecimal digits each.
    """
    columns: dict[str, AnyArray] = {
        "kernel_computation": np.array([k.computation for k in kernels], dtype=np.int32),
        "kernel_fingerprint": digests_of(fingerprints),
    }
    for part in ("inputs", "instructions", "outputs"):
        lists = [getattr(kernel, part) for kernel in kernels]
        columns[f"kernel_{part}_offsets"] = offsets_of(len(positions) for positions in lists)
        columns[f"kernel_{part}"] = np.array([p for positions in lists for p in positions], dtype=np.int32)
    return columns


def array_columns(
    kernels: KernelArrays, computations: I64, fingerprints: Sequence[str]
) -> dict[str, AnyArray]:
    """Returns the same columns for kernels given as arrays of positions.

    Args:
        kernels: k of them.
        computations: position of the computation that each belongs to, int64 [k].
        fingerprints: of the kernels, 32 hexadecimal digits each.
    """
    columns: dict[str, AnyArray] = {
        "kernel_computation": computations.astype(np.int32),
        "kernel_fingerprint": digests_of(fingerprints),
    }
    for part, offsets, positions in (
        ("inputs", kernels.inputs_offsets, kernels.inputs),
        ("instructions", kernels.instructions_offsets, kernels.instructions),
        ("outputs", kernels.outputs_offsets, kernels.outputs),
    ):
        columns[f"kernel_{part}_offsets"] = offsets
        columns[f"kernel_{part}"] = positions.astype(np.int32)
    return columns


def digests_of(fingerprints: Sequence[str]) -> U8:
    """Returns fingerprints of 32 hexadecimal digits as bytes, uint8 [k, 16]."""
    return np.frombuffer(bytes.fromhex("".join(fingerprints)), dtype=np.uint8).reshape(-1, 16)


def offsets_of(lengths: Iterable[int]) -> I64:
    """Returns where lists of these lengths begin, laid end to end, and where the last ends, int64 [k + 1]."""
    return np.concatenate([[0], np.cumsum(list(lengths), dtype=np.int64)]).astype(np.int64)
