"""Claims and rows whose verdicts can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.claims.evaluation import Finding, evaluate_claims
from costbench.reports.frame import frame_of
from tests.reports.conftest import make_row

MEAN = Claim("lpm2021.x", "Table 9", "A is better.", "tile", "tile_size_ape", "left_better", None)
MEAN = replace(MEAN, right=(Side(model="analytical"),), statistic="mean")
EQUAL = replace(MEAN, id="lpm2021.equal", direction="no_difference", paper_effect=0.5)


def rows_of_side(
    side: Side, values: Mapping[int, Sequence[float]], metric: str = "tile_size_ape"
) -> list[MetricRow]:
    """Returns rows: seed -> one value a program."""
    where = {"model": side.model, "variant": side.variant, "split": side.split, "chip": side.chip}
    return [
        make_row(**where, seed=seed, program=f"{side.split}{i}", metric=metric, value=value)
        for seed, several in values.items()
        for i, value in enumerate(several)
    ]


def rows_of_both(
    learned: Sequence[float], analytical: Sequence[float], metric: str = "tile_size_ape"
) -> list[MetricRow]:
    """Returns rows of one run of the network and of the analytical model, one value a program each."""
    return [*rows_of_side(LEARNED, {0: learned}, metric), *rows_of_side(ANALYTICAL, {0: analytical}, metric)]


def decide(claim: Claim, *rows: list[MetricRow], others: tuple[Claim, ...] = ()) -> Finding:
    """Returns the finding on a claim by these rows."""
    return evaluate_claims((claim, *others), frame_of(row for several in rows for row in several), seed=0)[0]


LEARNED, ANALYTICAL = Side(), Side(model="analytical")
HARD = [1.0, 20.0, 3.0, 40.0, 5.0, 60.0]
