"""Kernels that the chip does not run: prices, links between chips, and what is listed as left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.compiler.program import PreparedProgram
from costbench.errors import ParamsError, UnsupportedKernelError
from costbench.experiments.autotuning.outside_prices import (
    LeftOut,
    Links,
    OutsidePrices,
    Price,
    read_prices,
)
from costbench.experiments.autotuning.program_tuning import tune_program
from costbench.experiments.autotuning.session import Session, TuneOptions, TuningResult
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_module
from costbench.target import load_target
from costbench.tasks import TaskName
from tests.experiments.autotuning.test_session import nothing

# 800 bytes at 2 GB/s take 400 ns; of 4 chips each passes three quarters of that on, in three steps.
LINKS = Links(chips=4, gb_per_s=2.0, ns=10.0)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (Opcode.ALL_GATHER, 3 * 10 + 300),
        (Opcode.REDUCE_SCATTER, 3 * 10 + 300),
        (Opcode.ALL_REDUCE, 6 * 10 + 600),
        (Opcode.ALL_TO_ALL, 3 * 10 + 300),
        (Opcode.RAGGED_ALL_TO_ALL, 3 * 10 + 300),
        (Opcode.COLLECTIVE_PERMUTE, 10 + 400),
        (Opcode.COLLECTIVE_BROADCAST, 3 * 10 + 400),
        (Opcode.CUSTOM_CALL, None),
        (Opcode.INFEED, None),
    ],
)
def test_every_collective_by_hand(opcode: Opcode, expected: float | None) -> None:
    assert LINKS.price_ns(opcode, 800) == expected


@pytest.mark.parametrize("opcode", [Opcode.ALL_GATHER, Opcode.ALL_REDUCE, Opcode.COLLECTIVE_BROADCAST])
def test_one_chip_has_nobody_to_talk_to(opcode: Opcode) -> None:
    assert Links(chips=1, gb_per_s=2.0, ns=10.0).price_ns(opcode, 800) == 0.0


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        ({"chips": 0, "gb_per_s": 1.0}, "chips is 0"),
        ({"chips": 2, "gb_per_s": 0.0}, "gb_per_s is 0.0"),
        ({"chips": 2, "gb_per_s": 1.0, "ns": -1.0}, "ns is -1.0"),
    ],
)
def test_wrong_links(links: dict[str, float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Links(**links)  # type: ignore[arg-type]


TARGET = load_target("tpu_v3")
CORPUS = Path(__file__).parents[2] / "hlo" / "corpus"


def tune(folder: Path, name: str, task: TaskName = "tile", prices: Path | None = None) -> TuningResult:
    options = TuneOptions(CORPUS / f"{name}.hlo", task, minutes=4.0, model_minutes=0.1, prices=prices)
    return tune_program(Session(folder / "out", options, TARGET, resume=False, report=nothing), name)


def test_a_price_is_a_time_and_a_bandwidth() -> None:
    assert Price().of(1_000) == 0.0
    assert Price(ns=50.0).of(1_000) == 50.0
    assert Price(ns=50.0, gb_per_s=2.0).of(1_000) == 550.0


def test_what_is_outside_is_listed_by_kind() -> None:
    program = PreparedProgram(inline_fusions(read_module(CORPUS / "collective_starts.hlo")), "program")
    left_out = OutsidePrices({"all-gather": Price(10.0, 2.0)}).left_out(program.unique_kernels)
    # The result of the all-gather, 256 x 128 floats, is larger than its operand.
    no_routine = "the machine has no routine for"
    assert left_out == (
        LeftOut("all-reduce", "b", 1, None, f"{no_routine} all-reduce"),
        LeftOut("all-gather", "d", 1, 10.0 + 4 * 256 * 128 / 2, f"{no_routine} all-gather"),
        LeftOut("collective-permute", "f", 1, None, f"{no_routine} collective-permute"),
    )


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_the_rest_is_tuned_and_prices_are_added(tmp_path: Path, task: TaskName) -> None:
    free = tune(tmp_path / "free", "async_custom_call", task)
    assert [one.what for one in free.left_out] == ["Pallas"]
    assert free.default_ns > 0
    file = tmp_path / "prices.yaml"
    file.write_text("Pallas: {ns: 1000}\n")
    priced = tune(tmp_path / "priced", "async_custom_call", task, file)
    assert priced.default_ns == pytest.approx(free.default_ns + 1_000)
    assert priced.best_ns == pytest.approx(free.best_ns + 1_000)


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_prices_of_nothing_are_said(tmp_path: Path, task: TaskName, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "prices.yaml"
    links = "collectives: {chips: 4, gb_per_s: 2}"
    file.write_text(f"Pallas: {{ns: 1}}\nPalas: {{ns: 1}}\ndot: {{ns: 1}}\n{links}\n")
    tune(tmp_path, "async_custom_call", task, file)
    (warning,) = (message for message in caplog.messages if "prices.yaml" in message)
    assert "prices.yaml: Palas, dot, collectives: " in warning


def test_links_price_nothing_where_every_collective_has_a_price_of_its_own() -> None:
    program = PreparedProgram(inline_fusions(read_module(CORPUS / "collective_starts.hlo")), "program")
    table = {name: Price() for name in ("all-reduce", "all-gather", "collective-permute")}
    assert OutsidePrices(table, LINKS).unused(program.unique_kernels) == ["collectives"]
    del table["all-reduce"]
    assert OutsidePrices(table, LINKS).unused(program.unique_kernels) == []


@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_a_program_of_nothing_else_is_refused(tmp_path: Path, task: TaskName) -> None:
    with pytest.raises(UnsupportedKernelError, match=r"out: no kernel to tune: .* custom-call"):
        tune(tmp_path, "custom_call_literal", task)


EMPTY = """HloModule empty

ENTRY main {
  a = f32[0]{0} parameter(0)
  ROOT n = f32[0]{0} negate(a)
}
"""
# The loop never runs.
NEVER = """HloModule never

body {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,128] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,128] exponential(x)
  ROOT r = (s32[], f32[8,128]) tuple(j, y)
}

cond {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(0)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  s = (s32[], f32[8,128]) parameter(0)
  ROOT w = (s32[], f32[8,128]) while(s), condition=cond, body=body,
    backend_config={"known_trip_count":{"n":"0"}}
}
"""


@pytest.mark.parametrize("text", [EMPTY, NEVER])
@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_a_program_that_takes_no_time_is_refused(tmp_path: Path, task: TaskName, text: str) -> None:
    file = tmp_path / "program.hlo"
    file.write_text(text)
    options = TuneOptions(file, task, minutes=4.0, model_minutes=0.1)
    session = Session(tmp_path / "out", options, TARGET, resume=False, report=nothing)
    with pytest.raises(UnsupportedKernelError, match="no kernel to tune: no instruction takes time"):
        tune_program(session, "program")


def test_links_price_the_collectives_that_have_no_price_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("collectives: {chips: 4, gb_per_s: 2, ns: 10}\nall-gather: {ns: 7}\n")
    program = PreparedProgram(inline_fusions(read_module(CORPUS / "collective_starts.hlo")), "program")
    total = {one.what: one.total_ns for one in read_prices(file).left_out(program.unique_kernels)}
    small, whole = 4 * 64 * 128, 4 * 256 * 128
    assert total == {
        "all-reduce": 6 * 10 + 2 * 0.75 * small / 2,
        "all-gather": 7.0,
        "collective-permute": 10 + whole / 2,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all-reduce: 5", ": all-reduce"),
        ("all-reduce: {us: 5}", "us"),
        ("all-reduce: {ns: -5}", "ns is -5.0, expected 0 or more"),
        ("all-reduce: {gb_per_s: 0}", "gb_per_s is 0.0, expected above 0"),
        ("collectives: {chips: 0, gb_per_s: 1}", "chips is 0, expected 1 or more"),
        ("collectives: {gb_per_s: 1}", "chips"),
        ("[1]", "expected a mapping"),
    ],
)
def test_wrong_prices_are_one_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(ParamsError) as raised:
        read_prices(file)
    assert message in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_compiled_program_with_a_loop_and_shards_is_tuned(tmp_path: Path) -> None:
    found = tune(tmp_path, "compiled_sharded_scan")
    # Each of the 5 layers is gathered and reduced on the way forth and on the way back.
    assert {one.what: one.runs for one in found.left_out} == {"all-gather": 10, "all-reduce": 10}
    assert any(gain.runs == 5 for gain in found.gains)
    assert found.num_measured > 0
