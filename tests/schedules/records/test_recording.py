from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.errors import ChoiceError, DataError
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records import table as table_module
from costbench_schedules.records.arrow_file import read_arrow, write_arrow
from costbench_schedules.records.card import CARD, check_card, write_card
from costbench_schedules.records.recording import RecordingSpec, record, table_path
from costbench_schedules.records.second_measurements import second_measurements
from costbench_schedules.records.table import (
    AFTERWARDS,
    ANOTHER_PASS,
    RecordedTable,
    ReplayDevice,
    read_table,
    read_tables,
    write_table,
)
from costbench_schedules.spaces.space import ScheduleSpace
from tests.schedules.devices.fake import FAKE

OPERATOR = parse_operator("matmul:m=2,n=2,k=2")
SPACE = ScheduleSpace(OPERATOR).sub_space({"parallel": ["none", "first"], "cache": ["none"], "unroll": [0]})


def spec(folder: Path) -> RecordingSpec:
    return RecordingSpec(folder, limits=FAKE, batch=64)


def ignore(table: RecordedTable) -> None:
    """Nothing is printed."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedTable:
    return record(spec(tmp_path_factory.mktemp("whole")), "small", SPACE, ignore)


def test_a_table_has_every_configuration_once(recorded: RecordedTable) -> None:
    assert recorded.complete
    rows = SPACE.rows(range(SPACE.size))
    with CpuDevice(limits=FAKE) as device:
        measurement = device.measure(SPACE, rows)
    assert np.array_equal(recorded.columns["runtime_ns"], measurement.runtime_ns)
    # Half of the configurations have "first" and cannot be built.
    assert recorded.failed.sum() == SPACE.size // 2
    assert recorded.reasons == ("build error: no",)
    assert (
        recorded.gflops[~recorded.failed].max() == 16 / recorded.columns["runtime_ns"][~recorded.failed].min()
    )


def test_stopping_loses_nothing_that_was_written(tmp_path: Path, recorded: RecordedTable) -> None:
    def stop(table: RecordedTable) -> None:
        raise KeyboardInterrupt

    counts = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            record(spec(tmp_path), "small", SPACE, stop)
        counts.append(read_table(table_path(spec(tmp_path), "small")).num_measured)
    assert counts == [64, 128]
    record(spec(tmp_path), "small", SPACE, ignore)
    result = read_table(table_path(spec(tmp_path), "small"))
    assert np.array_equal(result.repeats, recorded.repeats)
    for name, column in recorded.columns.items():
        if name != "seconds":  # of failures, elapsed time
            assert np.array_equal(result.columns[name], column), name


def test_a_complete_table_gets_the_rounds_it_lacks(tmp_path: Path, recorded: RecordedTable) -> None:
    path = table_path(spec(tmp_path), "small")
    write_table(path, recorded)
    for rounds in (3, 3, 2):
        record(replace(spec(tmp_path), rounds=rounds), "small", SPACE, ignore)
        again = read_table(path).repeats
        numbers = again[again[:, 3] == AFTERWARDS, 0]
        assert np.array_equal(again[: len(recorded.repeats)], recorded.repeats)
        assert {*np.unique(numbers, return_counts=True)[1].tolist()} == {3}


def test_the_fastest_of_all_passes_counts(tmp_path: Path, recorded: RecordedTable) -> None:
    """A slow spell doubled the times of every other configuration; another pass is of a quiet time."""
    path = table_path(spec(tmp_path), "small")
    slow = np.where(np.arange(SPACE.size) % 2, 2, 1)
    columns = {name: recorded.columns[name] * slow for name in ("runtime_ns", "median_ns")}
    write_table(path, replace(recorded, columns={**recorded.columns, **columns}))
    before = second_measurements(recorded)
    for passes in (2, 2, 1):
        record(replace(spec(tmp_path), passes=passes), "small", SPACE, ignore)
        table = read_table(path)
        assert np.array_equal(table.columns["runtime_ns"], recorded.columns["runtime_ns"])
        in_passes = table.repeats[table.repeats[:, 3] == ANOTHER_PASS]
        assert sorted(in_passes[:, 0].tolist()) == np.flatnonzero(~recorded.failed).tolist()
    # What the first measurement is made of is no second one.
    after = second_measurements(table)
    assert before is not None
    assert after is not None
    assert np.array_equal(after.second_ns, before.second_ns)


def test_another_recording_is_not_continued(tmp_path: Path, recorded: RecordedTable) -> None:
    write_table(table_path(spec(tmp_path), "small"), replace(recorded, timing={"blocks": 1}))
    with pytest.raises(DataError, match="timing"):
        record(spec(tmp_path), "small", SPACE, ignore)


def test_an_unknown_target_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown processor"):
        record(replace(spec(tmp_path), target="z80"), "small", SPACE, ignore)
    assert not list(tmp_path.iterdir())


def test_equal_tables_have_equal_bytes(tmp_path: Path, recorded: RecordedTable) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / f"{name}.arrow", recorded)
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()
    table = read_table(tmp_path / "a.arrow")
    assert table.space.operator == OPERATOR
    assert table.host == recorded.host | {"features": ["f"]}
    assert [knob.values for knob in table.space.knobs] == [knob.values for knob in SPACE.knobs]


def test_damaged_tables_are_named(tmp_path: Path, recorded: RecordedTable) -> None:
    path = tmp_path / "t.arrow"
    write_table(path, recorded)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"t\.arrow: cannot be read"):
        read_table(path)
    columns = dict(recorded.columns) | {"runtime_ns": -recorded.columns["runtime_ns"]}
    write_table(path, replace(recorded, columns=columns))
    with pytest.raises(DataError, match="runtime_ns"):
        read_table(path)
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "none.arrow")


@pytest.mark.parametrize(
    ("name", "value"),
    [("restrict", [1]), ("operator", 3), ("repeats", [[1, 2]]), ("reasons", 3), ("host", 3)],
)
def test_facts_that_cannot_be_are_named(
    tmp_path: Path, recorded: RecordedTable, name: str, value: object
) -> None:
    path = tmp_path / "t.arrow"
    write_table(path, recorded)
    facts, table = read_arrow(path, table_module._KEY)
    arrays = [column.combine_chunks() for column in table.columns]
    write_arrow(path, table_module._KEY, facts | {name: value}, table_module._SCHEMA, arrays)
    with pytest.raises(DataError) as error:
        read_table(path)
    assert error.value.where == str(path)


def test_replay_answers_as_the_machine_did(recorded: RecordedTable) -> None:
    replay = ReplayDevice([recorded])
    whole = ScheduleSpace(OPERATOR)
    numbers = [5, 0, 77, 5]
    mine = replay.measure(SPACE, SPACE.rows(numbers))
    full = replay.measure(whole, SPACE.full_rows(SPACE.rows(numbers)))
    for result in (mine, full):
        assert result.runtime_ns.tolist() == recorded.columns["runtime_ns"][numbers].tolist()
        assert result.failed.tolist() == recorded.failed[numbers].tolist()
        assert [bool(reason) for reason in result.reasons] == result.failed.tolist()
        assert result.spread[~result.failed] == pytest.approx(0.25, rel=1e-3)
    assert replay.space(OPERATOR.text) is recorded.space


def test_replay_refuses_what_was_not_recorded(recorded: RecordedTable) -> None:
    replay = ReplayDevice([recorded])
    whole = ScheduleSpace(OPERATOR)
    other = whole.row_of(whole.choices(whole.rows([0])[0]) | {"unroll": 512})
    with pytest.raises(DataError, match="not recorded"):
        replay.measure(whole, other[None])
    with pytest.raises(DataError, match="was not recorded"):
        replay.space("matmul:m=2,n=2,k=4")
    with pytest.raises(DataError, match="two tables"):
        ReplayDevice([recorded, recorded])
    with pytest.raises(DataError, match="one machine"):
        different = replace(recorded, space=ScheduleSpace(parse_operator("matmul:m=2,n=2,k=4")))
        ReplayDevice([recorded, replace(different, target="generic")])


def test_a_card_finds_changed_tables(tmp_path: Path, recorded: RecordedTable) -> None:
    write_table(tmp_path / "native" / "small.arrow", recorded)
    card = write_card(tmp_path, "a shared machine")
    tables = card["tables"]
    assert isinstance(tables, dict)
    facts = tables["native/small.arrow"]
    assert facts["trusted"]
    assert facts["afterwards"]["tau"] == 1.0
    assert facts["failed"] == {"build error: no": SPACE.size // 2}
    check_card(tmp_path)
    assert write_card(tmp_path)["remarks"] == "a shared machine"
    assert len(read_tables(tmp_path / "native")) == 1
    write_table(tmp_path / "native" / "small.arrow", replace(recorded, workload="other"))
    with pytest.raises(DataError, match="SHA-256"):
        check_card(tmp_path)
    (tmp_path / "native" / "small.arrow").unlink()
    with pytest.raises(DataError, match="no such file"):
        check_card(tmp_path)
    assert (tmp_path / CARD).exists()


@pytest.mark.parametrize("facts", [7, {}, {"sha256": None}])
def test_a_card_without_digests_is_one_error(tmp_path: Path, recorded: RecordedTable, facts: object) -> None:
    write_table(tmp_path / "small.arrow", recorded)
    write_json(tmp_path / CARD, {"tables": {"small.arrow": facts}})
    with pytest.raises(DataError, match="SHA-256"):
        check_card(tmp_path)
