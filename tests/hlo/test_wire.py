"""Messages are counted as protobuf reads them, and before memory is taken for them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import zstandard
from google.protobuf.message import Message

from costbench.datasets.profiles.xplane import read_profile
from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import DataError, HloError
from costbench.hlo.conversion import module_to_proto
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_bytes, parse_proto
from costbench.hlo.wire import count_messages
from costbench.limits import MAX_MESSAGES
from tests.fuzz.programs import programs

EMPTY_INSTRUCTION, EMPTY_COMPUTATION, COMPUTATIONS = b"\x12\x00", b"\x1a\x00", b"\x1a"


def within(message: Message) -> int:
    """Returns the number of messages in a message, by its fields."""
    count = 0
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = value if field.is_repeated else [value]
            count += sum(1 + within(inner) for inner in values)
    return count


def computation_of(number: int) -> bytes:
    """Returns a module of one computation of empty instructions."""
    length, digits = 2 * number, b""
    while length > 127:
        digits, length = digits + bytes([length & 127 | 128]), length >> 7
    return COMPUTATIONS + digits + bytes([length]) + number * EMPTY_INSTRUCTION


def test_messages_are_counted_as_they_are_read() -> None:
    for module in programs():
        proto = module_to_proto(module)
        data, count = proto.SerializeToString(), within(proto)
        assert count_messages(proto, data, 10**6) == count > len(proto.computations)
        assert count_messages(proto, data, 7) == 8
        for end in range(0, len(data), 97):
            assert count_messages(proto, data[:end], 10**6) <= count


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (computation_of(3), 4),
        (5 * EMPTY_COMPUTATION, 5),
        (b"\x0a\x02\x12\x00" + EMPTY_COMPUTATION, 1),  # a name that could be a message
        (b"\x98\x06\x05\x91\x06" + bytes(8) + b"\x95\x06" + bytes(4) + EMPTY_COMPUTATION, 1),  # numbers
        (b"\x9b\x06" + EMPTY_COMPUTATION + b"\x9c\x06" + EMPTY_COMPUTATION, 2),  # an unknown group
        (b"\x1a\x7f\x12\x00", 2),  # longer than the data
    ],
)  # fmt: skip
def test_whatever_could_be_read_counts(data: bytes, count: int) -> None:
    assert count_messages(hlo_pb2.HloModuleProto(), data, 100) >= count


@pytest.mark.parametrize(
    ("data", "is_compressed"),
    [(computation_of(MAX_MESSAGES), False), ((MAX_MESSAGES + 1) * EMPTY_COMPUTATION, True)],
)
def test_too_many_messages_are_refused_before_they_are_read(data: bytes, is_compressed: bool) -> None:
    frame = zstandard.ZstdCompressor().compress(data)
    assert len(frame) < 1_000
    start = time.process_time()
    with pytest.raises(HloError, match=f"of more than {MAX_MESSAGES} messages"):
        module_from_bytes(frame if is_compressed else data, where="m.pb")
    assert time.process_time() - start < 10.0


def test_the_same_bytes_are_messages_of_other_kinds_in_other_files(tmp_path: Path) -> None:
    frame = zstandard.ZstdCompressor().compress(computation_of(MAX_MESSAGES))
    (tmp_path / "t.pb").write_bytes(frame)
    with pytest.raises(DataError, match=r"t\.pb"):
        read_tile_tuning(tmp_path / "t.pb")


def test_a_profile_of_empty_planes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.xplane.pb").write_bytes(b"\x0a\x00" * (3 * MAX_MESSAGES // 2))
    with pytest.raises(DataError, match=r"x\.xplane\.pb: 6291456 bytes of more than 2097152 messages"):
        read_profile(tmp_path / "x.xplane.pb")


def test_a_caller_may_accept_less() -> None:
    data = computation_of(20)
    assert len(parse_proto(data, where="m").computations[0].instructions) == 20
    with pytest.raises(HloError, match="more than 20 messages"):
        parse_proto(data, where="m", max_messages=20)
    frame = zstandard.ZstdCompressor().compress(data)
    with pytest.raises(HloError, match="expands to 42 or more"):
        parse_proto(frame, where="m", max_bytes=41)
