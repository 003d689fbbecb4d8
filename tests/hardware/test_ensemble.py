from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.errors import TargetError
from costbench.hardware.ensemble import (
    ensemble_text,
    fidelity_spread,
    load_ensemble,
    read_ensemble,
    spread,
)
from costbench.hardware.fidelity import KernelFidelity, report_of
from costbench.target import available_targets, load_target
from tests.hardware.machines import changed

V3 = load_target("tpu_v3")


def test_the_spread_is_the_median_and_nine_tenths() -> None:
    found = spread([float(value) for value in range(21)])
    assert found is not None
    assert (found.median, found.low, found.high) == (10.0, 1.0, 19.0)
    assert spread([None, 3.0, None]) == spread([3.0])
    assert spread([None]) is None


def test_fidelity_over_machines() -> None:
    reports = [
        report_of("chip", [KernelFidelity("k", 5, tau, 0.0, error, None)])
        for tau, error in ((0.8, 4.0), (0.9, 6.0), (1.0, 8.0))
    ]
    found = fidelity_spread(reports)
    assert found.num_machines == 3
    assert found.kendall_tau is not None
    assert found.kendall_tau.median == pytest.approx(0.9)
    assert found.mape is not None
    assert (found.mape.median, found.mape.low) == pytest.approx((6.0, 4.2))
    assert found.tau_fastest_quartile is None


def test_a_written_ensemble_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "chip.ensemble.json"
    machines = [changed(V3, launch_ns=123.456), changed(V3, launch_ns=7.0)]
    file.write_text(ensemble_text(machines), "utf-8")
    found = read_ensemble(file, V3)
    assert [one.name for one in found] == ["tpu_v3/0", "tpu_v3/1"]
    assert [one.timing.launch_ns for one in found] == [123.5, 7.0]
    assert found[0].architecture == V3.architecture


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"machines": 3}', '{"machines": [{"launch_ns": 1}]}'])
def test_a_broken_ensemble_is_one_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "chip.ensemble.json"
    file.write_text(text, "utf-8")
    with pytest.raises(TargetError, match=r"chip\.ensemble\.json"):
        read_ensemble(file, V3)


@pytest.mark.parametrize("chip", available_targets())
def test_every_chip_ships_with_an_ensemble(chip: str) -> None:
    target = load_target(chip)
    machines = load_ensemble(target)
    assert len(machines) == 32
    assert len({one.timing for one in machines}) == 32
    # The chip lies inside its ensemble, parameter by parameter.
    for name, value in vars(target.timing).items():
        values = [getattr(one.timing, name) for one in machines]
        assert min(values) <= value <= max(values), name


def test_a_chip_of_your_own_has_none() -> None:
    assert load_ensemble(changed(V3, launch_ns=1.0)) == ()
    assert load_ensemble(replace(V3, name="other")) == ()
