"""TpuGraphs' npz files that cannot be: one clear error each, and nothing unpickled or expanded."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.datasets.tpugraphs.npz import read_labels, read_tile_npz
from costbench.errors import CostbenchError, DataError
from tests.datasets.tpugraphs.public_arrays import layout_arrays, read_layout_npz, save, tile_arrays


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *[({key: None}, f"{key}: missing key") for key in tile_arrays() if "runtime" not in key],
        ({"node_feat": np.zeros((3, 112))}, r"node_feat: shape \(3, 112\) \(expected shape \(n, 140\)\)"),
        ({"edge_index": np.zeros((2, 2), int).T[:1]}, r"edge \[0, 0\]"),
        ({"edge_index": np.zeros((2, 3), int)}, r"edge_index: shape \(2, 3\) \(expected shape \(m, 2\)\)"),
        ({"config_feat": np.ones((2, 18))}, r"config_feat: shape \(2, 18\) \(expected shape \(c, 24\)\)"),
        ({"config_runtime": np.array([1, 2, 3])}, r"config_runtime: shape \(3,\) \(expected shape \(2,\)\)"),
        ({"config_runtime": np.array([1.0, 2.5])}, r"config_runtime: value 2\.5 \(expected integers"),
        ({"config_runtime": np.array([1.0, np.nan])}, "config_runtime: value nan"),
        ({"config_runtime": np.array([True, True])}, "config_runtime: type bool"),
        ({"config_runtime": np.array(["1", "2"])}, "config_runtime: type <U1"),
        ({"config_runtime": np.array([5, -1])}, "config_runtime: time -1 ns at 1"),
        ({"config_runtime_normalizers": np.array([0, 0])}, "normalizers: 0 everywhere beside runtimes"),
        ({"config_feat": np.full((2, 24), np.nan)}, "config_feat: value nan"),
        ({"node_opcode": np.array([1, 2, 200])}, "node_opcode: opcode 200"),
        ({"node_opcode": np.array([{}, {}, {}])}, "node_opcode: Python objects"),
        ({"edge_index": np.array([[3, 0]])}, r"edge_index: edge \[3, 0\]"),
        ({"edge_index": np.array([[1, -1]])}, r"edge_index: edge \[1, -1\]"),
    ],
)
def test_tile_files_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", tile_arrays(**changes))
    with pytest.raises(DataError, match=rf"bad\.npz: .*{message}"):
        read_tile_npz(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *[
            ({key: None}, f"{key}: missing key")
            for key in layout_arrays()
            if key not in ("config_runtime", "node_splits")
        ],
        ({"node_config_feat": np.full((4, 2, 18), np.nan)}, r"node_config_feat: value nan at \(0, 0, 0\)"),
        ({"node_config_feat": np.full((4, 2, 18), 1e39)}, "node_config_feat: value inf"),
        ({"node_config_feat": np.full((4, 2, 18), None)}, "node_config_feat: Python objects"),
        ({"node_config_feat": np.ones((4, 2, 17))}, r"node_config_feat: shape \(4, 2, 17\)"),
        ({"config_runtime": np.array([1, 2, -3, 4])}, "config_runtime: time -3 ns at 2"),
        ({"node_config_feat": np.ones((4, 3, 18))}, r"expected shape \(c, 2, 18\)"),
        ({"config_runtime": np.array([1])}, r"config_runtime: shape \(1,\) \(expected shape \(4,\)\)"),
        ({"node_config_ids": np.array([2, 0])}, "node_config_ids: values out of order"),
        ({"node_config_ids": np.array([0, 3])}, r"expected ascending in 0 to 2\)"),
        ({"node_splits": np.array([0, 4])}, r"node_splits: .*expected ascending in 0 to 3\)"),
    ],
)
def test_layout_files_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", layout_arrays(**changes))
    with pytest.raises(DataError, match=rf"bad\.npz: .*{message}"):
        read_layout_npz(path)


@pytest.mark.parametrize("read", [read_tile_npz, read_layout_npz])
def test_files_that_are_no_archives(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r": a folder \(expected an \.npz file\)"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"absent\.npz: no such file"):
        read(tmp_path / "absent.npz")
    for name, content in {
        "empty.npz": b"",
        "noise.npz": b"not an archive",
        "zip.npz": b"PK\x03\x04rest",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"single\.npy: a single array"):
        read(tmp_path / "single.npy")


def test_truncated_files(tmp_path: Path) -> None:
    whole = save(tmp_path / "t.npz", tile_arrays()).read_bytes()
    cut = tmp_path / "cut.npz"
    for length in range(0, len(whole), 97):
        cut.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"cut\.npz"):
            read_tile_npz(cut)


def test_a_damaged_array_is_named(tmp_path: Path) -> None:
    whole = bytearray(save(tmp_path / "t.npz", tile_arrays()).read_bytes())
    values = np.float32(100).tobytes() + np.float32(101).tobytes()
    whole[whole.index(values)] ^= 0xFF  # inside node_feat, so that its checksum is wrong
    (tmp_path / "t.npz").write_bytes(whole)
    with pytest.raises(DataError, match=r"t\.npz: node_feat: cannot be read: Bad CRC-32"):
        read_tile_npz(tmp_path / "t.npz")


def test_files_of_the_other_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="config_feat: missing key"):
        read_tile_npz(save(tmp_path / "l.npz", layout_arrays()))
    with pytest.raises(DataError, match="node_config_ids: missing key"):
        read_layout_npz(save(tmp_path / "t.npz", tile_arrays()))


READERS = pytest.mark.parametrize(
    ("read", "arrays"), [(read_tile_npz, tile_arrays), (read_layout_npz, layout_arrays)]
)


@READERS
def test_a_key_that_occurs_twice(
    read: Callable[[Path], object], arrays: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = save(tmp_path / "x.npz", arrays())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("node_feat.npy", b"")
    with pytest.raises(DataError, match=r"x\.npz: node_feat: occurs twice"):
        read(path)


def header_of(shape: tuple[int, ...]) -> bytes:
    """The header of a float32 array."""
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


@READERS
@pytest.mark.parametrize("rows", [4, 10**12, -3])
def test_a_header_that_promises_other_than_there_is(
    read: Callable[[Path], object], arrays: Callable[..., dict[str, Any]], rows: int, tmp_path: Path
) -> None:
    """Refused by its size, before memory is asked for."""
    path = save(tmp_path / "x.npz", arrays(node_feat=None))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("node_feat.npy", header_of((rows, 140)) + bytes(3 * 140 * 4))
    with pytest.raises(DataError, match=rf"node_feat: .*shape \({rows}, 140\)"):
        read(path)


@pytest.mark.parametrize(
    ("key", "shape"), [("node_feat", (2_000_000, 140)), ("node_config_feat", (8_000_000, 2, 18))]
)
def test_a_decompression_bomb(key: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """A gigabyte of zeros in a megabyte: refused before it is decompressed."""
    path = save(tmp_path / "bomb.npz", layout_arrays(**{key: None}))
    header, size = header_of(shape), 4 * math.prod(shape)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = deflate.compress(header) + deflate.flush(zlib.Z_FULL_FLUSH)
    zeros = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{key}.npy", start + zeros * (size // (1 << 24) + 1))
        member = archive.infolist()[-1]
        member.compress_type, member.file_size = zipfile.ZIP_DEFLATED, len(header) + size
    with pytest.raises(DataError, match=rf"bomb\.npz: {key}: .* bytes that expand to"):
        read_layout_npz(path)


def test_many_configs_of_no_nodes(tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", layout_arrays(node_config_feat=None, config_runtime=None))
    header = io.BytesIO()
    shape = (10**12, 0, 18)
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("node_config_feat.npy", header.getvalue())
    for read in (read_layout_npz, read_labels):
        with pytest.raises(DataError, match=r"bad\.npz: node_config_feat: shape \(1000000000000, 0, 18\)"):
            read(path)


def test_other_ways_to_compress_and_to_encrypt(tmp_path: Path) -> None:
    for name, change, message in (
        ("lzma.npz", {"compress_type": zipfile.ZIP_LZMA}, "compressed by method 14"),
        ("secret.npz", {"flag_bits": 1}, "encrypted"),
    ):
        path = save(tmp_path / name, tile_arrays(node_feat=None))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("node_feat.npy", header_of((3, 140)) + bytes(3 * 140 * 4))
            for field, value in change.items():
                setattr(archive.infolist()[-1], field, value)
        with pytest.raises(DataError, match=rf"{name}: node_feat: {message}"):
            read_tile_npz(path)


@given(data=st.data())
def test_changed_bytes_are_an_error_or_the_same_graph(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever happens to an archive, nothing but one clear error comes out of it."""
    folder = tmp_path_factory.mktemp("npz")
    kind = data.draw(st.sampled_from(["tile", "layout"]))
    arrays = tile_arrays() if kind == "tile" else layout_arrays()
    compressed = data.draw(st.booleans())
    (np.savez_compressed if compressed else np.savez)(folder / "x.npz", **arrays)
    content = bytearray((folder / "x.npz").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / "x.npz").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        graph = (read_tile_npz if kind == "tile" else read_layout_npz)(folder / "x.npz")
    except CostbenchError as error:
        assert "x.npz" in str(error)
        assert "\n" not in str(error)
    else:
        assert graph.is_labelled
