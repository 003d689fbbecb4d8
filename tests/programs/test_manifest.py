"""The manifest and a user's programs: every way in which a folder can be wrong has one clear error."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from costbench.artifacts import digest_bytes, write_bytes
from costbench.errors import DataError
from costbench.hlo.reader import module_from_bytes, read_module
from costbench.hlo.text.parser import proto_from_text
from costbench.programs.manifest import (
    ProgramEntry,
    all_programs,
    load_manifest,
    read_program_bytes,
    save_manifest,
    toolchain_of,
    user_programs,
)

SMALL = "rnn_char_b64_infer_f32"
TEST_APPLICATIONS = {"ConvDRAW", "WaveRNN", "NMT Model", "SSD", "RNN", "ResNet v1", "ResNet v2", "Translate"}
MANUAL_TEST = (
    "ranking_train", "feats2wave_hifigan", "image_embed_train", "smartcompose_infer",
    "wavernn_1", "wavernn_2",
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(repository: Path) -> Path:
    return repository / "data" / "programs"


@pytest.fixture
def small(tmp_path: Path, corpus: Path) -> tuple[Path, ProgramEntry]:
    """A folder with one program of the corpus."""
    entry = next(one for one in load_manifest(corpus) if one.name == SMALL)
    shutil.copy(corpus / entry.file, tmp_path)
    save_manifest(tmp_path, [entry], {"jax": "1"})
    return tmp_path, entry


def edit(folder: Path, change: Any) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_the_corpus_covers_what_the_papers_test_on(corpus: Path) -> None:
    entries = load_manifest(corpus)
    programs_of = Counter(entry.application for entry in entries)
    assert all(programs_of[application] >= 2 for application in TEST_APPLICATIONS)
    assert {entry.step for entry in entries} == {"train", "infer"}
    assert {entry.dtype for entry in entries} == {"f32", "bf16"}
    for wanted in MANUAL_TEST:
        parts = wanted.rsplit("_", 1) if wanted.endswith(("_train", "_infer")) else (wanted, "")
        assert any(entry.name.startswith(parts[0]) and parts[1] in entry.name for entry in entries), wanted


def test_every_committed_program_is_what_its_row_says(corpus: Path) -> None:
    entries = load_manifest(corpus)
    for entry in entries:
        read_program_bytes(corpus, entry)
    files = {path.name for path in corpus.glob("*.zst")}
    assert files == {entry.file for entry in entries}


def test_the_smallest_program_is_read_as_its_row_counts_it(corpus: Path) -> None:
    entry = min(load_manifest(corpus), key=lambda one: one.instructions)
    module = read_module(corpus / entry.file)
    assert module.name == entry.name
    assert sum(len(computation.instructions) for computation in module.computations) == entry.instructions


def test_a_saved_manifest_is_read_back(small: tuple[Path, ProgramEntry]) -> None:
    folder, entry = small
    assert load_manifest(folder) == (entry,)
    assert toolchain_of(folder) == {"jax": "1"}
    read_program_bytes(folder, entry)


def test_rows_come_back_in_order_of_name(small: tuple[Path, ProgramEntry]) -> None:
    folder, entry = small
    edit(folder, lambda content: content["programs"].insert(0, content["programs"][0] | {"name": "z"}))
    assert [one.name for one in load_manifest(folder)] == [entry.name, "z"]


def test_missing_folder_and_missing_manifest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such programs folder"):
        load_manifest(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"manifest\.json: no such file .expected .*`collect`"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.pop("application"), r"programs\[0\] \(rnn_char.*\)\.application: missing"),
        (lambda row: row.update(batch="64"), r"\.batch: '64' \(expected type int\)"),
        (lambda row: row.update(batch=True), r"\.batch: True \(expected type int\)"),
        (lambda row: row.update(sha256=1), r"\.sha256: 1 \(expected type str\)"),
        (lambda row: row.update(colour="red"), r"\.colour: unknown field"),
    ],
)
def test_a_bad_row_names_program_and_field(
    small: tuple[Path, ProgramEntry], change: Any, message: str
) -> None:
    folder, _ = small
    edit(folder, lambda content: change(content["programs"][0]))
    with pytest.raises(DataError, match=message):
        load_manifest(folder)


def test_a_manifest_that_is_no_list_of_rows(small: tuple[Path, ProgramEntry]) -> None:
    folder, _ = small
    edit(folder, lambda content: content.update(programs={"a": 1}))
    with pytest.raises(DataError, match="no list of programs"):
        load_manifest(folder)
    edit(folder, lambda content: content.update(programs=["a"]))
    with pytest.raises(DataError, match=r"programs\[0\]: 'a' is no row"):
        load_manifest(folder)


@pytest.mark.parametrize("toolchain", [["jax"], "jax", None])
def test_a_toolchain_that_is_no_object(small: tuple[Path, ProgramEntry], toolchain: object) -> None:
    folder, _ = small
    edit(folder, lambda content: content.update(toolchain=toolchain))
    with pytest.raises(DataError) as caught:
        toolchain_of(folder)
    assert (caught.value.where, caught.value.field) == (str(folder / "manifest.json"), "toolchain")


def test_a_name_may_be_listed_once(small: tuple[Path, ProgramEntry]) -> None:
    folder, _ = small
    edit(folder, lambda content: content["programs"].append(content["programs"][0]))
    with pytest.raises(DataError, match="listed twice"):
        load_manifest(folder)


def test_another_program_under_the_same_name_is_noticed(small: tuple[Path, ProgramEntry]) -> None:
    folder, entry = small
    proto = read_program_bytes(folder, entry)
    write_bytes(folder / entry.file, zstandard.compress(proto + b"\x12\x00"))
    with pytest.raises(DataError, match=f"sha256: digest {digest_bytes(proto + bytes([18, 0]))[:12]}"):
        read_program_bytes(folder, entry)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_program_is_an_error(small: tuple[Path, ProgramEntry], share: float) -> None:
    folder, entry = small
    data = (folder / entry.file).read_bytes()
    write_bytes(folder / entry.file, data[: int(len(data) * share)])
    with pytest.raises(DataError, match=entry.file):
        read_program_bytes(folder, entry)


def test_a_missing_program_is_an_error(small: tuple[Path, ProgramEntry]) -> None:
    folder, entry = small
    (folder / entry.file).unlink()
    with pytest.raises(DataError, match="no such file"):
        read_program_bytes(folder, entry)


def test_user_programs_of_every_suffix_are_listed(small: tuple[Path, ProgramEntry]) -> None:
    folder, entry = small
    proto = read_program_bytes(folder, entry)
    (folder / "user").mkdir()
    (folder / "user" / "mine.hlo.pb").write_bytes(proto)
    (folder / "user" / "other.pb").write_bytes(proto)
    (folder / "user" / "packed.hlo.pb.zst").write_bytes((folder / entry.file).read_bytes())
    (folder / "user" / "zipped.hlo.pb.gz").write_bytes(gzip.compress(proto))
    (folder / "user" / "notes.txt").write_text("not a program")
    (folder / "user" / ".hlo.pb").write_bytes(b"")
    text = "HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] tanh(x)\n}\n"
    for name, encoding in (
        ("dump.hlo.txt", "utf-8"),
        ("plain.hlo", "utf-8-sig"),
        ("printed.txt", "utf-8-sig"),
    ):
        (folder / "user" / name).write_text(text, encoding)
    entries = user_programs(folder)
    assert [one.name for one in entries] == [
        "user_dump", "user_mine", "user_other", "user_packed", "user_plain", "user_printed", "user_zipped",
    ]  # fmt: skip
    assert all(one.is_user_program for one in entries)
    assert not entry.is_user_program
    for one in (entries[0], entries[4], entries[5]):
        module = module_from_bytes(read_program_bytes(folder, one), where=one.name)
        assert [inst.name for inst in module.entry_computation.instructions] == ["x", "y"]
    assert [one.application for one in entries] == [
        f"user:{stem}" for stem in ("dump", "mine", "other", "packed", "plain", "printed", "zipped")
    ]
    assert read_program_bytes(folder, entries[6]) == proto
    assert all(read_program_bytes(folder, entries[index]) == proto for index in (1, 2, 3))
    assert all_programs(folder) == (entry, *entries)
    for one in entries:
        read_program_bytes(folder, one)


@pytest.mark.parametrize("suffix", [".pb.zst", ".hlo.zst", ".hlo.gz", ".hlo.txt.zst", ".hlo.txt.gz"])
def test_a_compressed_user_program_is_not_left_out_silently(tmp_path: Path, suffix: str) -> None:
    text = b"HloModule m\n\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] tanh(x)\n}\n"
    content = text
    if suffix.startswith(".pb"):
        content = proto_from_text(text.decode(), where="x").SerializeToString()
    pack = gzip.compress if suffix.endswith(".gz") else zstandard.ZstdCompressor().compress
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / f"mine{suffix}").write_bytes(pack(content))
    (entry,) = user_programs(tmp_path)
    assert entry.name == "user_mine"
    assert module_from_bytes(read_program_bytes(tmp_path, entry), where="x").name == "m"


def test_user_files_that_share_a_stem_are_refused(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "a.pb").write_bytes(b"1")
    (tmp_path / "user" / "a.hlo.pb").write_bytes(b"2")
    with pytest.raises(DataError, match="share a stem"):
        user_programs(tmp_path)


def test_a_link_to_nothing_is_no_program_that_is_left_out_silently(tmp_path: Path) -> None:
    (tmp_path / "user" / "folder.hlo.pb").mkdir(parents=True)
    (tmp_path / "user" / "mine.hlo.pb").symlink_to(tmp_path / "gone.hlo.pb")
    (entry,) = user_programs(tmp_path)
    with pytest.raises(DataError, match=r"mine\.hlo\.pb: no such file"):
        read_program_bytes(tmp_path, entry)
    (tmp_path / "user" / "dump.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r"dump\.txt: no such file"):
        user_programs(tmp_path)


def test_no_user_folder_is_no_programs(tmp_path: Path) -> None:
    assert user_programs(tmp_path) == ()


def test_nothing_of_jax_is_imported() -> None:
    # In a fresh interpreter: other tests have imported JAX into this one.
    code = (
        "import sys\n"
        "from costbench.programs import canonical, manifest\n"
        "sys.exit(' '.join(m for m in ('jax', 'jaxlib', 'keras') if m in sys.modules) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
