"""What the analytical model says of a processor that nothing was recorded on before, beside simpler guesses.

Two processors ran the same programs: the one of `data/networks`, and the one at hand
(`costbench describe-cpu`, `repeat-networks`, `estimate-networks`). For each operator a model chooses among
its programs; what the processor at hand measured says how good the choice is. Printed are, as means over
operators: the speed of the program predicted fastest over that of the fastest (`top-1`), the same for the
best of five (`top-5`), Kendall's tau, and for times the error (MAPE). Models are

- `crop`: with the description of the processor at hand, and with others;
- `measured there`: the order that the other processor measured, the strongest baseline;
- `throughput`, `roofline`, `instructions`, as in docs/crop.md, and `random`.

Differences to `crop` have 95% intervals over operators. Needs no compiler.

    costbench describe-cpu --out my_cpu.yaml
    costbench repeat-networks data/networks --out recorded --random 12 --searched 12
    costbench estimate-networks recorded estimated --processor my_cpu.yaml
    python -m benchmarks.crop_processors estimated
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.errors import CostbenchError, DataError
from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import best_of_top_k, mape
from costbench.rng import stream
from costbench_schedules.records.programs import PROGRAMS, EstimatedPrograms, read_estimated

MIN_PROGRAMS = 10
"""Programs of an operator that a choice among them needs."""
MEASURED_THERE = "measured there"
CROP = "crop"
TIMES = (CROP, "throughput", "roofline", MEASURED_THERE)
"""Models that say nanoseconds; other descriptions of `crop` do, too."""
_OTHER = "total@"


@dataclass(frozen=True, eq=False)
class Shared:
    """The programs that both processors ran, n in all.

    Attributes:
        operators: number of each program's operator, int64 [n].
        runtime_ns: runtimes on the processor at hand, float64 [n].
        costs: predicted costs by model, float64 [n].
    """

    operators: I64
    runtime_ns: F64
    costs: dict[str, F64]


def match_programs(ours: EstimatedPrograms, theirs: EstimatedPrograms, name: str, seed: int = 0) -> Shared:
    """Returns the programs of operators that have enough of them.

    Args:
        ours: programs of the processor at hand.
        theirs: programs of the other one.
        name: name of the other one's description.
        seed: seed of the random costs.

    Raises:
        DataError: if there are none.
    """
    their_indices = {_key(theirs, index): index for index in np.flatnonzero(_ran(theirs)).tolist()}
    our_indices = [
        index for index in np.flatnonzero(_ran(ours)).tolist() if _key(ours, index) in their_indices
    ]
    operators = ours.columns["operator"].astype(np.int64)
    sizes = np.bincount(operators[our_indices], minlength=len(ours.operators))
    our_indices = [index for index in our_indices if sizes[operators[index]] >= MIN_PROGRAMS]
    if not our_indices:
        raise DataError(
            "no operator has programs that both processors ran", expected=f"{MIN_PROGRAMS} or more"
        )
    matches = [their_indices[_key(ours, index)] for index in our_indices]
    costs = {CROP: ours.estimates["total"][our_indices], f"crop, {name}": theirs.estimates["total"][matches]}
    for key, values in ours.estimates.items():
        if key.startswith(_OTHER):
            costs[f"crop, {key.removeprefix(_OTHER)}"] = values[our_indices]
    costs[MEASURED_THERE] = theirs.columns["native_ns"][matches].astype(np.float64)
    costs |= {key: ours.estimates[key][our_indices] for key in ("throughput", "roofline", "instructions")}
    costs["random"] = stream(seed, "random programs").random(len(our_indices))
    return Shared(operators[our_indices], ours.columns["native_ns"][our_indices].astype(np.float64), costs)


def _ran(programs: EstimatedPrograms) -> Bool:
    ran: Bool = programs.columns["analysed"] & (programs.columns["native_ns"] > 0)
    return ran


def _key(programs: EstimatedPrograms, index: int) -> tuple[str, int]:
    operator = programs.operators[int(programs.columns["operator"][index])]
    return operator.text, int(programs.columns["number"][index])


@dataclass(frozen=True, eq=False)
class Scores:
    """How good a model's choices are, a number for each operator.

    Attributes:
        top_1: fastest runtime over that of the program predicted fastest.
        top_5: fastest runtime over that of the best of the five predicted fastest.
        tau: Kendall's tau of predicted and measured runtimes.
        error: MAPE over all programs; None for a model that predicts no times.
    """

    top_1: F64
    top_5: F64
    tau: F64
    error: float | None


def score_model(programs: Shared, model: str) -> Scores:
    """Returns how good the choices of a model are."""
    costs, runtime = programs.costs[model], programs.runtime_ns
    masks = [programs.operators == number for number in np.unique(programs.operators)]
    tops = [
        np.array([runtime[mask].min() / best_of_top_k(costs[mask], runtime[mask], k) for mask in masks])
        for k in (1, 5)
    ]
    taus = np.array([np.nan_to_num(kendall_tau(costs[mask], runtime[mask])) for mask in masks])
    is_time = model in TIMES or model.startswith(f"{CROP},")
    return Scores(*tops, taus, mape(costs, runtime) if is_time else None)


def table(programs: Shared) -> list[str]:
    """Returns the lines of the table, `crop` first."""
    of_crop = score_model(programs, CROP)
    lines = [f"{'':<28}{'top-1':>7}{'top-5':>7}{'tau':>7}{'MAPE':>8}   tau, less that of crop"]
    for model in programs.costs:
        scores = score_model(programs, model)
        error = "" if scores.error is None else f"{scores.error:.0f}%"
        means = (values.mean() for values in (scores.top_1, scores.top_5, scores.tau))
        line = f"{model:<28}" + "".join(f"{mean:7.3f}" for mean in means) + f"{error:>8}"
        if model != CROP:
            interval = paired_bootstrap(scores.tau, of_crop.tau, stream(0, "operators", model))
            line += f"   {interval.difference:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
        lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("estimated", type=Path, help="folder of `estimate-networks`, of this processor")
    parser.add_argument("--there", type=Path, default=Path("data/networks"), help="of the other processor")
    parser.add_argument("--name", default="amd_epyc_zen4", help="of the other processor's description")
    options = parser.parse_args(arguments)
    try:
        ours, theirs = (read_estimated(folder / PROGRAMS) for folder in (options.estimated, options.there))
        programs = match_programs(ours, theirs, options.name)
    except CostbenchError as error:
        print(error, file=sys.stderr)
        return 1
    count = len(np.unique(programs.operators))
    print(f"{len(programs.runtime_ns):,} programs of {count} operators")
    print("\n".join(table(programs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
