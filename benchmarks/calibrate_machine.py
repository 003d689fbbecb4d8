r"""Fits the simulated machine's `timing` to real tile-tuning runs, and tests the fit on kernels left out.

`costbench.hardware.calibration` says how. Prints fidelity before and after, each kernel predicted by a fit
without it, how well each parameter is known, and how well machines of other formulas fit. With `--machines`,
an ensemble of machines that agree with the runs is drawn as well and written beside the chips' files.

    python -m benchmarks.calibrate_machine tile_calibration.pb
    python -m benchmarks.calibrate_machine tile_calibration.pb --write src/costbench/chips/tpu_v3.yaml \
        --scaled src/costbench/chips/tpu_v2.yaml --machines 32
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from costbench import artifacts
from costbench.experiments.evaluation.recorded_runs import recorded_kernels
from costbench.hardware.calibration import (
    ALL_FORMULAS,
    PRIORS,
    SUFFIX,
    Fit,
    Recorded,
    ensemble_text,
    fidelity,
    fit,
    leave_one_out,
    lower_runs,
    machines_by_rule,
    read_ensemble,
    sample_machine,
    sample_scaling,
    scale_timing,
    without_codegen,
)
from costbench.hardware.fidelity import FidelityReport, fidelity_spread
from costbench.target import Formulas, Target, load_target

SEED = 0
"""Of the ensembles that ship with the package."""


def read_recorded(path: Path) -> list[Recorded]:
    """Returns the kernels of a tuning file that ran at least once."""
    return lower_runs(recorded_kernels(path))


def print_report(title: str, report: FidelityReport) -> None:
    """Prints a line per kernel, and means: tau over kernels of five runs or more, errors over all."""
    print(f"\n{title}")
    print(f"  {'kernel':<14}{'runs':>5}{'tau':>8}{'fastest':>9}{'top-1':>8}{'MAPE':>8}")
    for k in report.kernels:
        tau, fast = (
            "-" if value is None else f"{value:.3f}" for value in (k.kendall_tau, k.tau_fastest_quartile)
        )
        print(f"  {k.name:<14}{k.num_runs:>5}{tau:>8}{fast:>9}{k.top1_slowdown:>8.2%}{k.mape:>7.1f}%")
    mean_tau, mean_fast = (
        math.nan if value is None else value for value in (report.kendall_tau, report.tau_fastest_quartile)
    )
    print(f"  {'mean':<19}{mean_tau:>8.3f}{mean_fast:>9.3f}{report.top1_slowdown:>8.2%}{report.mape:>7.1f}%")


def print_parameters(before: Target, found: Fit) -> None:
    """Values before and after, how well they are known, and what they are not separable from."""
    print(f"\n  {'parameter':<22}{'before':>10}{'after':>10}{'known to':>10}  told apart badly from")
    names = list(PRIORS)
    for i, name in enumerate(names):
        after = getattr(found.target.timing, name)
        row = np.abs(np.where(np.arange(len(names)) == i, 0.0, found.correlation[i]))
        other = int(row.argmax())
        confused = f"{names[other]} ({found.correlation[i, other]:+.2f})" if row[other] > 0.6 else ""
        line = f"  {name:<22}{getattr(before.timing, name):>10.4g}{after:>10.4g}{found.log_sd[i]:>9.0%}  "
        print((line + confused).rstrip())


def print_formulas(recorded: Sequence[Recorded], target: Target) -> None:
    """Prints a line for each rule's choices, other rules the default's, all numbers fitted to it.

    Cost of the robust fit; means of fidelity; and of errors of kernels as predicted by a fit to the others.
    """
    print(f"\n  {'formula':<18}{'cost':>6}{'tau':>8}{'fastest':>9}{'top-1':>8}{'MAPE':>8}{'left out':>10}")
    default = Formulas()
    for formulas in ALL_FORMULAS:
        others = [
            f"{rule} {choice}"
            for rule, choice in asdict(formulas).items()
            if choice != getattr(default, rule)
        ]
        if len(others) > 1:
            continue
        chip = replace(target, formulas=formulas)
        fitted = fit(recorded, chip)
        report = fidelity(recorded, without_codegen(fitted.target))
        held_out = leave_one_out(recorded, chip)
        print(
            f"  {''.join(others) or 'default':<18}{fitted.cost:>6.1f}{report.kendall_tau:>8.3f}"
            f"{report.tau_fastest_quartile:>9.3f}{report.top1_slowdown:>8.2%}{report.mape:>7.1f}%"
            f"{held_out.mape:>9.1f}%"
        )


def write_timing(path: Path, target: Target) -> None:
    """Puts timing into a chip's file, to four digits; everything else in it stays."""
    text = path.read_text("utf-8")
    for name, value in asdict(target.timing).items():
        text, count = re.subn(rf"(?m)^  {name}: .*$", f"  {name}: {float(f'{value:.4g}')}", text)
        if count != 1:
            raise SystemExit(f"{path}: {name} occurs {count} times, expected once")
    artifacts.write_text(path, text)


def write_ensembles(
    recorded: Sequence[Recorded], target: Target, number: int, chip_file: Path, scaled_file: Path | None
) -> tuple[Target, ...]:
    """Draws machines and writes them beside the files of the measured chip and of one scaled from it."""
    sampled = [sample_machine(recorded, target, SEED, i) for i in range(number)]
    written = chip_file.with_suffix(SUFFIX)
    artifacts.write_text(written, ensemble_text(sampled))
    if scaled_file is not None:
        other = load_target(scaled_file)
        machines = [sample_scaling(machine, other, SEED, i) for i, machine in enumerate(sampled)]
        artifacts.write_text(scaled_file.with_suffix(SUFFIX), ensemble_text(machines))
    return read_ensemble(written, target)


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, fits, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="raw TpuGraphs tile-tuning file (.pb)")
    parser.add_argument("--chip", default="tpu_v3", help="chip to start from, by name or file")
    parser.add_argument("--prior-width", type=float, default=1.0, help="how much wider priors are taken")
    parser.add_argument("--write", type=Path, help="chip file whose timing is replaced")
    parser.add_argument("--scaled", type=Path, help="file of another chip that gets the scaled timing")
    parser.add_argument("--machines", type=int, default=0, help="of the ensembles written beside both files")
    parser.add_argument("--json", type=Path, help="where results are written")
    options = parser.parse_args(arguments)
    if options.machines and options.write is None:
        parser.error("--machines needs --write")

    target = load_target(options.chip)
    recorded = read_recorded(options.file)
    before = fidelity(recorded, target)
    fitted = fit(recorded, target, prior_width=options.prior_width)
    after, regular = fidelity(recorded, fitted.target), fidelity(recorded, without_codegen(fitted.target))
    held_out = leave_one_out(recorded, target, options.prior_width)
    print_report(f"{target.name} as it is", before)
    print_report("fitted", after)
    print_report("fitted, generated code perfectly regular", regular)
    print_report("each kernel as predicted by a fit to the others, generated code regular", held_out)
    print_parameters(target, fitted)
    print_formulas(recorded, target)
    if options.write is not None:
        write_timing(options.write, fitted.target)
    if options.scaled is not None:
        write_timing(options.scaled, scale_timing(fitted.target, load_target(options.scaled)))
    if options.machines:
        files = (options.write, options.scaled)
        ensemble = write_ensembles(recorded, fitted.target, options.machines, *files)
        reports = [fidelity(recorded, machine) for machine in ensemble]
        print(f"\nensemble: {fidelity_spread(reports)}")
        for rule, choice, numbers in machines_by_rule(ensemble):
            print(f"{rule} {choice}: {fidelity_spread([reports[number] for number in numbers])}")
    if options.json is not None:
        result = {
            "before": before.to_dict(),
            "after": after.to_dict(),
            "regular_code": regular.to_dict(),
            "leave_one_out": [asdict(kernel) for kernel in held_out.kernels],
            "timing": asdict(fitted.target.timing),
            "log_sd": dict(zip(PRIORS, map(float, fitted.log_sd), strict=True)),
            "cost": fitted.cost,
        }
        artifacts.write_text(options.json, json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
