"""Compiled elementwise and reduction loops over node states, each in place of several torch operations.

Each reads and writes every state once, where torch would make a pass over memory per operation. States are
float32 [N, C, H] (nodes, decisions, width), contiguous; kernel k has the nodes starts[k] to starts[k + 1].
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled


@compiled
def join(own: F32, joined: F32, kernel_of_node: I64, out: F32) -> None:
    """out_nc = relu(own_n + joined_kc), k the kernel of n: own [N, H], joined [K, C, H], out [N, C, H]."""
    for n in range(len(out)):
        addend = own[n]
        of_kernel = joined[kernel_of_node[n]]
        of_node = out[n]
        for c in range(out.shape[1]):
            row, more = of_node[c], of_kernel[c]
            for h in range(len(row)):
                value = addend[h] + more[h]
                row[h] = np.float32(0.0) if value < 0.0 else value


@compiled
def join_gradient(d: F32, out: F32, kernel_of_node: I64, d_own: F32, d_joined: F32) -> None:
    """Add the gradients of the arguments of `join` to `d_own` [N, H] and `d_joined` [K, C, H].

    `d` is the gradient of `out`; it passes where `out` is above 0. A NaN lets it pass, as in torch.
    """
    for n in range(len(out)):
        sums = d_own[n]
        of_kernel = d_joined[kernel_of_node[n]]
        of_node, received = out[n], d[n]
        for c in range(out.shape[1]):
            seen, came, more = of_node[c], received[c], of_kernel[c]
            for h in range(len(seen)):
                value = np.float32(0.0) if seen[h] <= 0.0 else came[h]
                sums[h] += value
                more[h] += value


@compiled
def sum_and_max(states: F32, starts: I64, total: F32, largest: F32, ties: F32) -> None:
    """Write, for each column of a kernel's nodes, the sum, the maximum, and how many nodes reach the maximum.

    The rows of a kernel are read once for all three. Shape: states [N, W]; total, largest and ties [K, W].
    """
    for k in range(len(total)):
        sums, most, many = total[k], largest[k], ties[k]
        sums[:] = states[starts[k]]
        most[:] = states[starts[k]]
        many[:] = 1.0
        for n in range(starts[k] + 1, starts[k + 1]):
            row = states[n]
            for w in range(len(row)):
                value, high, count = row[w], most[w], many[w]
                sums[w] += value
                # A NaN wins against every number, as in torch (high != high: the maximum is NaN already).
                most[w] = high if value <= high or high != high else value
                count = np.float32(1.0) if value > high else count
                many[w] = count + np.float32(1.0) if value == high else count


@compiled
def sum_and_max_gradient(
    states: F32,
    starts: I64,
    largest: F32,
    evenly: F32,
    shared: F32,
    out: F32,
) -> None:
    """out_n = evenly_k + (shared_k where states_n = largest_k, else 0), k the kernel of node n.

    Shape: largest, evenly and shared [K, W]; states and out [N, W].
    """
    for k in range(len(largest)):
        most, base, extra = largest[k], evenly[k], shared[k]
        for n in range(starts[k], starts[k + 1]):
            row, written = states[n], out[n]
            for w in range(len(row)):
                more = extra[w] if row[w] == most[w] else np.float32(0.0)
                written[w] = base[w] + more
