"""Compares all recorded runs of a real chip with the simulated one: kernels it was fitted to, and a program.

Writes the rows of the report's table `recorded_runs_<chip>`, which says them on its first page. A kernel's
times are those of its fastest recorded tile, a program's those of its default layouts; errors are over all
runs. To be run again whenever the machine changes:

    python -m benchmarks.recorded_runs tile_calibration.pb layout_module.pb \
        --write src/costbench/chips/tpu_v3.recorded_runs.csv
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.recorded_layouts import agreement
from costbench.artifacts import write_text
from costbench.datasets.tpugraphs.raw import read_layout_tuning
from costbench.experiments.evaluation.recorded_runs import recorded_kernels
from costbench.hardware.fidelity import MIN_RUNS_FOR_RANKING, RecordedKernel, evaluate_fidelity
from costbench.hardware.simulator import simulate
from costbench.reports.tables.machines import FITTED, RECORDED_COLUMNS, TEST
from costbench.target import Target, load_target

FITTED_PROGRAM = "AlexNet, training, batch 32"
TEST_PROGRAM = "3-D U-Net, training, batch 2"
KERNELS: Mapping[str, tuple[str, str]] = {
    "fusion.191": (
        "convolution 3x3, 192 to 384 features, and what follows it",
        "code that differs from tile to tile",
    ),
    "fusion.209": ("gradient through softmax and a dot", "nothing that these runs show"),
    "fusion.245": (
        "gradient of a bias: masked sum over batch and image",
        "strided copies of one tile that cost nothing",
    ),
    "copy.24": ("copy: batch from sublanes to the outermost axis", "nothing that these runs show"),
    "fusion.181": ("random numbers compared with a threshold", "nothing that these runs show"),
    "fusion.206": ("sum of exponentials along lanes", "nothing that these runs show"),
    "reshape.39": ("a reshape that moves data", "the inside of a fixed routine"),
}
"""Name of a recorded kernel -> what it is, what the machine lacks there (docs/fidelity.md, What is left)."""
PROGRAM_LACKS = (
    "sums over cores, which cost nothing here; turning operands whose sums lie in sublanes; gradients of "
    "filters whose result has the other operand's features in its lanes"
)

Row = Mapping[str, object]


def kernel_row(item: RecordedKernel, target: Target) -> Row:
    """Returns the row of a recorded kernel."""
    (result,) = evaluate_fidelity([item], target).kernels
    fastest = int(np.argmin(item.runtime_ns))
    simulated_ns = float(simulate(item.kernel, item.tile_sizes, target).runtime_ns[fastest])
    what, lacks = KERNELS.get(item.name, ("", ""))
    return {
        "program": FITTED_PROGRAM,
        "item": f"{item.name}: {what}" if what else item.name,
        "use": FITTED,
        "runs": result.num_runs,
        "recorded_us": _digits(float(item.runtime_ns[fastest]) / 1e3),
        "simulated_us": _digits(simulated_ns / 1e3),
        "error_percent": _digits(result.mape),
        "tau": _tau(result.kendall_tau) if result.num_runs >= MIN_RUNS_FOR_RANKING else "",
        "lacks": lacks,
    }


def program_row(path: Path, target: Target) -> Row:
    """Returns the row of a program with recorded layout runs."""
    result = agreement(read_layout_tuning(path), target)
    plateaus = " + ".join(str(runs) for runs in result.plateaus)
    return {
        "program": TEST_PROGRAM,
        "item": f"the whole program under {result.num_runs} choices of layouts",
        "use": TEST,
        "runs": result.num_runs,
        "recorded_us": _digits(result.recorded_ms * 1e3),
        "simulated_us": _digits(result.simulated_ms * 1e3),
        "error_percent": _digits(result.mape),
        "tau": _tau(result.kendall_tau),
        "lacks": f"{PROGRAM_LACKS} (recorded: {len(result.plateaus)} plateaus of {plateaus} runs)",
    }


def rows_of(tiles: Path, layouts: Path, target: Target) -> list[Row]:
    """Returns the rows of all recorded runs: kernels in the order of the file, then the program."""
    kernels = [kernel_row(item, target) for item in recorded_kernels(tiles)]
    return [*kernels, program_row(layouts, target)]


def text_of(rows: Sequence[Row]) -> str:
    """Returns the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, RECORDED_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _digits(value: float) -> str:
    """Returns four digits, which are the same on every processor."""
    return f"{value:.4g}" if value < 1e4 else f"{round(value)}"


def _tau(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tiles", type=Path, help="raw TpuGraphs tile-tuning file (.pb)")
    parser.add_argument("layouts", type=Path, help="raw TpuGraphs layout-tuning file (.pb)")
    parser.add_argument("--chip", default="tpu_v3", help="chip by name or file")
    parser.add_argument("--write", type=Path, help="where the rows are written")
    options = parser.parse_args(arguments)
    text = text_of(rows_of(options.tiles, options.layouts, load_target(options.chip)))
    print(text, end="")
    if options.write is not None:
        write_text(options.write, text)


if __name__ == "__main__":
    main(sys.argv[1:])
