"""Metrics of decisions that a model chooses (Tile-Size APE, slowdown@k, top-k score), and MAPE of runtimes.

A cost model's job is to choose, so the first look only at the runtimes of what it chose. Ties among
predictions are broken by position (the first of equal predictions wins), which makes every metric here a
function of its arguments.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.metrics.checks import aligned, not_empty, positive


def best_of_top_k(predicted: npt.ArrayLike, runtime_ns: npt.ArrayLike, k: int) -> float:
    """Returns the fastest runtime among the `k` decisions predicted fastest: min of `runtime_ns` over them.

    Args:
        predicted: cost, float [n], lower is faster.
        runtime_ns: measured runtimes, [n].
        k: number of decisions that are tried; with `k >= n` all are.

    Raises:
        DataError: if the arrays differ in length, are empty or not finite, or `k < 1`.
    """
    cost, runtime = aligned(predicted=predicted, runtime_ns=runtime_ns)
    not_empty(cost, "predicted")
    if k < 1:
        raise DataError(f"{k}", field="k", expected="at least 1")
    chosen = np.argsort(cost, kind="stable")[:k]
    return float(runtime[chosen].min())


def tile_size_ape(
    chosen_ns: npt.ArrayLike, best_ns: npt.ArrayLike, executions: npt.ArrayLike | None = None
) -> float:
    """Returns the Tile-Size APE of a program, in percent (lpm2021, equation 2).

    100 * sum_k w_k |chosen_k - best_k| / sum_k w_k best_k, over the program's kernels k: how much slower
    the program is with the model's choices than with the best ones. The paper sums over all kernels of a
    program; here equal kernels are stored once, so `w_k` says how often kernel k runs.

    Args:
        chosen_ns: runtime of the tile predicted fastest, [num_kernels].
        best_ns: runtime of the fastest tile, [num_kernels].
        executions: how often each kernel runs in one run of the program; once each when left out.

    Raises:
        DataError: for arrays that are empty, of different lengths, not finite or not positive.
    """
    chosen, best, weight = _weighted(chosen_ns, best_ns, executions)
    return float(100.0 * (weight * np.abs(chosen - best)).sum() / (weight * best).sum())


def top_k_score(
    chosen_ns: npt.ArrayLike, best_ns: npt.ArrayLike, executions: npt.ArrayLike | None = None
) -> float:
    """Returns the share of the best speed that a choice reaches (crop2024, table 2).

    sum_k w_k best_k / sum_k w_k chosen_k, in (0, 1]; `chosen_ns` holds `best_of_top_k` of each kernel.

    Raises:
        DataError: as `tile_size_ape`.
    """
    chosen, best, weight = _weighted(chosen_ns, best_ns, executions)
    return float((weight * best).sum() / (weight * chosen).sum())


def slowdown_at_k(predicted: npt.ArrayLike, runtime_ns: npt.ArrayLike, k: int) -> float:
    """Returns the top-k error of one kernel: best of the k predicted fastest / best of all - 1.

    A fraction (tpugraphs2023, equation 1), 0 when the best is among the k.

    Raises:
        DataError: as `best_of_top_k`, or if a runtime is not above zero.
    """
    runtime = positive(runtime_ns, "runtime_ns")
    return best_of_top_k(predicted, runtime, k) / float(runtime.min()) - 1.0


def _weighted(
    chosen_ns: npt.ArrayLike, best_ns: npt.ArrayLike, executions: npt.ArrayLike | None
) -> tuple[F64, F64, F64]:
    weights = np.ones(np.shape(best_ns)) if executions is None else executions
    chosen, best, weight = aligned(chosen_ns=chosen_ns, best_ns=best_ns, executions=weights)
    positive(not_empty(chosen, "chosen_ns"), "chosen_ns")
    return chosen, positive(best, "best_ns"), positive(weight, "executions")


def mape(predicted_ns: npt.ArrayLike, runtime_ns: npt.ArrayLike) -> float:
    """Returns the mean absolute percentage error, 100 / n * sum |predicted - measured| / measured.

    It is that of lpm2021, section 5.2.

    Raises:
        DataError: for arrays that are empty, of different lengths or not finite, or a runtime <= 0.
    """
    predicted, measured = aligned(predicted_ns=predicted_ns, runtime_ns=runtime_ns)
    positive(not_empty(measured, "runtime_ns"), "runtime_ns")
    return float(100.0 * np.mean(np.abs(predicted - measured) / measured))
