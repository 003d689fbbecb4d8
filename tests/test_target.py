from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest

from costbench.compiler.estimate_quality import QUALITIES
from costbench.errors import TargetError
from costbench.params import digest, plain_values
from costbench.target import Architecture, Formulas, Timing, available_targets, load_target


def chip_file(tmp_path: Path, *replacements: tuple[str, str]) -> Path:
    """The description of a TPU v3 with lines replaced."""
    source = Path(load_target.__code__.co_filename).parent / "chips" / "tpu_v3.yaml"
    text = source.read_text("utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "chip.yaml"
    file.write_text(text, "utf-8")
    return file


def test_the_chips_that_ship() -> None:
    assert available_targets() == ("tpu_v2", "tpu_v3")
    for name in available_targets():
        assert load_target(name).name == name


@pytest.mark.parametrize(
    ("name", "clock", "mxus", "bandwidth", "teraflops"),
    [("tpu_v2", 700, 1, 350, 22.9), ("tpu_v3", 940, 2, 450, 61.6)],
)
def test_public_figures(name: str, clock: int, mxus: int, bandwidth: int, teraflops: float) -> None:
    architecture = load_target(name).architecture
    assert (architecture.clock_mhz, architecture.num_mxus, architecture.hbm_gb_per_s) == (
        clock,
        mxus,
        bandwidth,
    )
    assert (architecture.mxu_size, architecture.lanes, architecture.sublanes) == (128, 128, 8)
    assert architecture.scratchpad_bytes == 16 * 2**20
    # A multiplication and an addition in each of 128 x 128 cells, units and cycles.
    assert 2 * 128**2 * mxus * clock * 1e6 == pytest.approx(teraflops * 1e12, rel=0.005)
    assert architecture.cycle_ns == pytest.approx(1000 / clock)


def test_the_machine_is_no_faster_than_its_public_figures() -> None:
    for name in available_targets():
        target = load_target(name)
        assert target.timing.read_gb_per_s < target.architecture.hbm_gb_per_s
        assert target.timing.write_gb_per_s < target.timing.read_gb_per_s


def test_generated_code_and_noise_stay_within_what_is_known() -> None:
    for name in available_targets():
        timing = load_target(name).timing
        assert 0 < timing.codegen_compute_sd <= 0.3
        assert 0 < timing.codegen_transfer_sd <= 0.1
        assert 0 < timing.noise_sd <= 0.01


def test_nothing_was_measured_on_a_v2() -> None:
    """Its timing is the v3's by the public ratios: the core's times by clock, transfers by bandwidth."""
    v2, v3 = load_target("tpu_v2"), load_target("tpu_v3")
    clock, bandwidth = 940 / 700, 350 / 450
    by_clock = {
        "launch_ns",
        "iteration_ns",
        "transfer_ns",
        "chunk_ns",
        "descriptor_ns",
        "convolution_drain_ns",
        "dot_drain_ns",
        "cross_lane_ns",
        "cross_sublane_ns",
        "row_address_ns",
    }
    factors = dict.fromkeys(by_clock, clock) | {
        "read_gb_per_s": bandwidth,
        "write_gb_per_s": bandwidth,
        "bank_ns": 1 / bandwidth,
    }
    for field in fields(Timing):
        expected = getattr(v3.timing, field.name) * factors.get(field.name, 1.0)
        # Files keep four digits.
        assert getattr(v2.timing, field.name) == pytest.approx(expected, rel=1e-3), field.name


def test_a_chip_of_ones_own(tmp_path: Path) -> None:
    file = chip_file(tmp_path, ("name: tpu_v3", "name: mine"), ("clock_mhz: 940.0", "clock_mhz: 1000"))
    target = load_target(file)
    assert target.name == "mine"
    assert target.architecture.clock_mhz == 1000.0
    assert load_target(str(file)) == target


def test_formulas_of_ones_own(tmp_path: Path) -> None:
    assert load_target("tpu_v3").formulas == Formulas()
    file = chip_file(tmp_path, ("timing:\n", "formulas:\n  overlap: share\n  edges: rows\ntiming:\n"))
    target = load_target(file)
    assert target.formulas == Formulas(overlap="share", chunks="merged", edges="rows")
    # What was measured on a chip before there were formulas stays valid; on another machine it is another.
    assert "formulas" not in cast(Mapping[str, object], plain_values(load_target("tpu_v3")))
    assert digest(target) != digest(load_target("tpu_v3"))


def test_an_unknown_chip_is_an_error_with_the_choices() -> None:
    with pytest.raises(TargetError, match="unknown chip 'tpu_v9'") as caught:
        load_target("tpu_v9")
    assert "tpu_v2, tpu_v3" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("  lanes: 128\n", "", "lanes"),
        ("  lanes: 128\n", "  lanes: 128\n  wings: 2\n", "wings"),
        ("  num_mxus: 2\n", "  num_mxus: two\n", "num_mxus"),
        ("timing:\n", "formulas:\n  overlap: none\ntiming:\n", "formulas.overlap"),
        ("timing:\n", "formulas:\n  pieces: rows\ntiming:\n", "formulas.pieces"),
        ("  num_mxus: 2\n", "  num_mxus: 1.5\n", "num_mxus"),
        ("  num_mxus: 2\n", "  num_mxus: 0\n", "architecture.num_mxus"),
        ("  clock_mhz: 940.0\n", "  clock_mhz: -1.0\n", "architecture.clock_mhz"),
        ("  clock_mhz: 940.0\n", "  clock_mhz: .nan\n", "clock_mhz"),
    ],
)
def test_a_broken_file_is_an_error_that_names_the_field(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    file = chip_file(tmp_path, (old, new))
    with pytest.raises(TargetError) as caught:
        load_target(file)
    assert field in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"absent\.yaml"):
        load_target(tmp_path / "absent.yaml")


def test_sections_are_complete() -> None:
    for section, kind in (("architecture", Architecture), ("timing", Timing)):
        values = getattr(load_target("tpu_v3"), section)
        assert isinstance(values, kind)
        numbers = [f.name for f in fields(kind) if f.type != "str"]
        assert len(numbers) >= len(fields(kind)) - 1
        assert all(isinstance(getattr(values, name), int | float) for name in numbers)
    assert load_target("tpu_v3").architecture.estimate in QUALITIES
