from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import DataError, UnsupportedKernelError
from costbench.hardware.fidelity import (
    FidelityReport,
    KernelFidelity,
    RecordedKernel,
    evaluate_fidelity,
    fidelity_spread,
    report_of,
    spread,
)
from costbench.hardware.simulator import simulate
from costbench.target import load_target
from tests.compiler import small_kernels as small

V3 = load_target("tpu_v3")


def recorded(factors: list[float], name: str = "kernel") -> RecordedKernel:
    """Runs of an elementwise kernel that took so many times what the machine says."""
    kernel = small.elementwise()
    space = tile_space(kernel, V3.architecture)
    tiles = space.decode(np.arange(len(factors)))
    priced = simulate(kernel, tiles, V3).runtime_ns
    return RecordedKernel(name, kernel, tiles, np.rint(priced * factors * 1000).astype(np.int64))


def test_a_machine_agrees_with_itself_up_to_its_unit() -> None:
    # Runs in picoseconds: the ranking is perfect, errors are 99.9%.
    report = evaluate_fidelity([recorded([1.0] * 12)], V3)
    assert report.kendall_tau == pytest.approx(1.0)
    assert report.tau_fastest_quartile == pytest.approx(1.0)
    assert report.top1_slowdown == 0.0
    assert report.mape == pytest.approx(99.9)


def test_by_hand() -> None:
    kernel = small.elementwise()
    tiles = tile_space(kernel, V3.architecture).decode(np.array([0, 5, 12, 20]))
    priced = simulate(kernel, tiles, V3).runtime_ns
    order = np.argsort(priced)
    # Measured times in an order of which one of six pairs is wrong, the two fastest swapped.
    measured = np.empty(4, dtype=np.int64)
    measured[order] = [1200, 1000, 3000, 4000]
    item = RecordedKernel("swapped", kernel, tiles, measured)
    report = evaluate_fidelity([item], V3)
    (agreement,) = report.kernels
    assert agreement.kendall_tau == pytest.approx((5 - 1) / 6)
    # It picks the tile that took 1200 where 1000 was to be had.
    assert agreement.top1_slowdown == pytest.approx(0.2)
    assert agreement.mape == pytest.approx(np.mean(np.abs(priced - measured) / measured) * 100)
    assert agreement.num_runs == 4
    # The fastest quarter of four runs is one run, which ranks nothing.
    assert agreement.tau_fastest_quartile is None
    # Fewer than five runs do not count for the mean ranking.
    assert report.kendall_tau is None
    assert report.top1_slowdown == pytest.approx(0.2)


def test_means_count_every_kernel_once() -> None:
    report = evaluate_fidelity(
        [recorded([1.0] * 12, "a"), recorded([2.0] * 6, "b"), recorded([1.0], "c")], V3
    )
    assert [k.num_runs for k in report.kernels] == [12, 6, 1]
    assert report.kernels[2].kendall_tau is None
    assert report.kendall_tau == pytest.approx(1.0)
    assert report.mape == pytest.approx(np.mean([k.mape for k in report.kernels]))


def test_equal_runtimes_rank_nothing() -> None:
    kernel = small.elementwise()
    tiles = tile_space(kernel, V3.architecture).decode(np.arange(6))
    item = RecordedKernel("flat", kernel, tiles, np.full(6, 1000, dtype=np.int64))
    report = evaluate_fidelity([item], V3)
    assert report.kernels[0].kendall_tau is None
    assert report.kendall_tau is None
    assert report.top1_slowdown == 0.0


def test_a_report_is_plain_json() -> None:
    report = evaluate_fidelity([recorded([1.0] * 12), recorded([1.0])], V3)
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert document["chip"] == "tpu_v3"
    assert document["overall"]["num_kernels"] == 2
    assert document["overall"]["num_runs"] == 13
    assert set(document["kernels"][0]) == {
        "name",
        "num_runs",
        "kendall_tau",
        "top1_slowdown",
        "mape",
        "tau_fastest_quartile",
    }
    assert document["kernels"][1]["kendall_tau"] is None


def test_nothing_recorded_is_an_error() -> None:
    with pytest.raises(DataError, match="no recorded kernels"):
        evaluate_fidelity([], V3)


# ---- the real machine ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared_data: Path) -> FidelityReport:
    kernels = read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")
    return evaluate_fidelity(
        [RecordedKernel(k.name, k.kernel, k.tile_sizes, k.runtime_ns) for k in kernels], V3
    )


def test_the_machine_ranks_real_tiles(real: FidelityReport) -> None:
    assert real.kendall_tau is not None
    assert real.kendall_tau >= 0.80


def test_the_machine_takes_about_as_long_as_the_real_one(real: FidelityReport) -> None:
    assert real.mape <= 30.0


def test_the_machine_ranks_the_fastest_tiles_too(real: FidelityReport) -> None:
    # Counting iterations ranks random tiles at 0.73, but the fastest hardly at all.
    assert real.tau_fastest_quartile is not None
    assert real.tau_fastest_quartile > 0.4


def test_the_tile_it_thinks_best_is_good(real: FidelityReport) -> None:
    assert real.top1_slowdown < 0.03


def test_every_recorded_run_was_priced(real: FidelityReport) -> None:
    assert {k.name: k.num_runs for k in real.kernels} == {
        "fusion.191": 291,
        "fusion.209": 16,
        "fusion.245": 23,
        "copy.24": 10,
        "fusion.181": 5,
        "fusion.206": 3,
        "reshape.39": 2,
    }


def test_the_documentation_states_these_numbers(real: FidelityReport, repository: Path) -> None:
    text = (repository / "docs" / "fidelity.md").read_text("utf-8")
    section = text.split("## Result")[1].split("##")[0]
    rows = {
        cells[0].strip(" `*"): [cell.strip(" *") for cell in cells[2:]]
        for cells in (line.strip("|").split("|") for line in section.splitlines() if line.startswith("| "))
    }

    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    for kernel in real.kernels:
        expected = [str(kernel.num_runs), shown(kernel.kendall_tau)]
        if kernel.num_runs >= 5:
            expected.append(shown(kernel.tau_fastest_quartile))
            assert rows[kernel.name][:3] == expected
        assert rows[kernel.name][:2] == expected[:2]
        assert rows[kernel.name][3:] == [f"{kernel.top1_slowdown:.1%}", f"{kernel.mape:.1f}%"]
    means = [shown(real.kendall_tau), shown(real.tau_fastest_quartile)]
    assert rows["mean"][1:] == [*means, f"{real.top1_slowdown:.1%}", f"{real.mape:.1f}%"]


def test_iterations_alone_rank_worse(shared_data: Path, real: FidelityReport) -> None:
    """The bar is no bar if counting iterations clears it on the convolution's fastest tiles."""
    kernel = next(
        k
        for k in read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")
        if k.name == "fusion.191"
    )
    nest = tile_space(kernel.kernel, V3.architecture).nest
    measured = kernel.runtime_ns
    fast = measured <= np.quantile(measured, 0.25)
    tiles: TileSizes = kernel.tile_sizes
    iterations = nest.iterations(tiles)[fast]
    # Concordant minus discordant pairs, ties being neither.
    left = np.sign(iterations[:, None] - iterations[None, :])
    right = np.sign(measured[fast][:, None] - measured[fast][None, :])
    counted = (left * right).sum() / np.abs(right).sum()
    tau = next(k for k in real.kernels if k.name == "fusion.191").tau_fastest_quartile
    assert tau is not None
    assert tau > counted + 0.2


def test_a_kernel_that_cannot_be_priced_is_named_and_the_others_count() -> None:
    whole = recorded([1.0] * 6)
    bounds = whole.tile_sizes.output_bounds
    foreign = RecordedKernel(
        "foreign", whole.kernel, TileSizes(whole.tile_sizes.kernel_bounds, bounds + 10_000), whole.runtime_ns
    )
    report = evaluate_fidelity([foreign, whole], V3)
    assert [k.name for k in report.kernels] == ["kernel"]
    assert [(k.name, k.num_runs) for k in report.unpriced] == [("foreign", 6)]
    assert "tile bound outside of the shape" in report.unpriced[0].reason
    with pytest.raises(UnsupportedKernelError):
        evaluate_fidelity([foreign], V3)


def test_the_spread_is_the_median_and_nine_tenths() -> None:
    summary = spread([float(value) for value in range(21)])
    assert summary is not None
    assert (summary.median, summary.low, summary.high) == (10.0, 1.0, 19.0)
    assert spread([None, 3.0, None]) == spread([3.0])
    assert spread([None]) is None


def test_fidelity_over_machines() -> None:
    reports = [
        report_of("chip", [KernelFidelity("k", 5, tau, 0.0, error, None)])
        for tau, error in ((0.8, 4.0), (0.9, 6.0), (1.0, 8.0))
    ]
    summary = fidelity_spread(reports)
    assert summary.num_machines == 3
    assert summary.kendall_tau is not None
    assert summary.kendall_tau.median == pytest.approx(0.9)
    assert summary.mape is not None
    assert (summary.mape.median, summary.mape.low) == pytest.approx((6.0, 4.2))
    assert summary.tau_fastest_quartile is None
