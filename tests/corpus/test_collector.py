"""Collecting is deterministic and picks up where it was; what it writes is a program to XLA itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpus import collector
from corpus.collector import collect, compress, toolchain
from costbench.artifacts import CHECKSUMS_FILE, write_bytes
from costbench.errors import ChoiceError, DataError
from costbench.programs import manifest

pytestmark = pytest.mark.corpus
pytest.importorskip("jax", reason="needs the corpus extra: jax")
pytest.importorskip("keras", reason="needs the corpus extra: keras")

KERAS, HAND_WRITTEN, TINY = "vgg19_b64_infer_f32", "wavernn_3_b1_infer_bf16", "rnn_char_b64_infer_f32"


@pytest.fixture(scope="module")
def committed(repository: Path) -> Path:
    folder = repository / "data" / "programs"
    if toolchain() != manifest.toolchain_of(folder):
        pytest.skip(f"the corpus was built with {manifest.toolchain_of(folder)}, here is {toolchain()}")
    return folder


@pytest.mark.slow
def test_rebuilding_gives_the_committed_bytes(tmp_path: Path, committed: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = collect(
        tmp_path, [KERAS, HAND_WRITTEN], jobs=2, progress=lambda done, total, _: seen.append((done, total))
    )
    assert result.built == (KERAS, HAND_WRITTEN)
    assert seen == [(1, 2), (2, 2)]
    rows = {entry.name: entry for entry in manifest.load_manifest(committed)}
    for entry in manifest.load_manifest(tmp_path):
        assert entry == rows[entry.name]
        assert (tmp_path / entry.file).read_bytes() == (committed / entry.file).read_bytes()


def test_a_second_run_builds_only_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The building itself is tested above; here it happens in this process and is counted.
    built: list[str] = []

    def build_here(folder: Path, specs: Any, jobs: int) -> Any:
        del jobs
        for spec in specs:
            built.append(spec.name)
            yield collector._build_one(folder, spec.name)

    monkeypatch.setattr(collector, "_build_all", build_here)
    names = [TINY, "nmt_b32_infer_f32"]
    assert collect(tmp_path, names).built == tuple(sorted(names))
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert collect(tmp_path, names).unchanged == tuple(sorted(names))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    write_bytes(tmp_path / f"{TINY}.hlo.pb.zst", first[f"{TINY}.hlo.pb.zst"][:100])
    assert collect(tmp_path, names).built == (TINY,)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert collect(tmp_path, [TINY], force=True).built == (TINY,)
    assert built == [*sorted(names), TINY, TINY]


def test_programs_that_left_the_table_leave_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = collector._build_one(tmp_path, TINY)
    manifest.save_manifest(tmp_path, [entry], toolchain())
    monkeypatch.setattr(collector, "SPECS", ())
    assert collect(tmp_path).removed == (TINY,)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKSUMS_FILE, "manifest.json"]
    assert manifest.load_manifest(tmp_path) == ()


def test_an_unknown_name_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown program 'lenet'"):
        collect(tmp_path / "new", ["lenet"])
    assert not (tmp_path / "new").exists()


def test_a_model_that_fails_names_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> bytes:
        raise ValueError("shapes differ")

    monkeypatch.setattr(collector, "lower_for_tpu", broken)
    with pytest.raises(DataError, match=f"{TINY}: cannot be built: ValueError: shapes differ"):
        collector._build_one(tmp_path, TINY)


def test_a_missing_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> str:
        raise collector.PackageNotFoundError(package)

    monkeypatch.setattr(collector, "version", absent)
    with pytest.raises(DataError, match=r"jax is not installed \(expected the extra `corpus`"):
        toolchain()


def test_compression_depends_on_the_bytes_only() -> None:
    data = bytes(range(256)) * 300
    assert compress(data) == compress(bytearray(data))


@pytest.mark.parametrize("name", ["dlrm_b2048_infer_f32", "translate_1_b32_infer_bf16"])
def test_xla_reads_the_committed_programs(committed: Path, name: str) -> None:
    """XLA's own parser and verifier accept the normal form, and find as many instructions in it."""
    from jaxlib import _hlo, _jax  # type: ignore[attr-defined]

    entry = next(one for one in manifest.load_manifest(committed) if one.name == name)
    proto = manifest.read_program_bytes(committed, entry)
    parsed = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    assert parsed.name == name
    assert parsed.to_string().count(" = ") == entry.instructions
    assert _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto))
