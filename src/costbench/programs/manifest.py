"""Reads and writes the corpus: `manifest.json`, the compressed programs beside it, a user's own programs.

The manifest has one row per program; a row's digest is that of the uncompressed proto, so it names
the program and not the compressor. Nothing here needs JAX: this is what every later stage reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import digest_bytes, open_file, read_bytes, read_json, write_json
from costbench.errors import DataError, HloError
from costbench.hlo.reader import decompress
from costbench.hlo.text.parser import looks_like_text, proto_from_text

MANIFEST_NAME = "manifest.json"
USER_FOLDER = "user"
_USER_SUFFIXES = (
    *(f"{kind}{packed}" for kind in (".hlo.pb", ".hlo.txt", ".pb", ".hlo") for packed in (".zst", ".gz")),
    *(".hlo.pb", ".pb", ".hlo.txt", ".txt", ".hlo"),
)
_USER_APPLICATION = "user:"
"""Beginning of the applications of a user's own programs."""
_MAYBE_NOTES = ".txt"
_BEGINNING_BYTES = 1 << 16


@dataclass(frozen=True)
class ProgramEntry:
    """One row of the manifest.

    Attributes:
        name: unique name; `<stem>_b<batch>_<step>_<dtype>` for programs of the corpus.
        application: family that the by-application split keeps together.
        builder: function of the model zoo that builds it, empty for a user's program.
        step: `train`, `infer`, or empty where unknown.
        batch: examples per step, 0 where unknown.
        dtype: compute dtype, `f32` or `bf16`, or empty where unknown.
        optimizer: rule of the training step; empty for inference.
        source: `keras`, `jax` or `user`.
        faithful: source of the layer sizes.
        reference: text that describes the model, empty for a user's program.
        instructions: number of instructions in all computations (0 where not counted).
        sha256: digest of the uncompressed proto; empty for a user's program.
        file: file name relative to the programs folder.
    """

    name: str
    application: str
    builder: str
    step: str
    batch: int
    dtype: str
    optimizer: str
    source: str
    faithful: str
    reference: str
    instructions: int
    sha256: str
    file: str

    @property
    def is_user_program(self) -> bool:
        """Returns whether the program is one of the user's own."""
        return is_of_user(self.application)


def is_of_user(application: str) -> bool:
    """Returns whether an application is that of a user's own program."""
    return application.startswith(_USER_APPLICATION)


def load_manifest(folder: Path) -> tuple[ProgramEntry, ...]:
    """Returns rows of the corpus in order of name.

    Raises:
        DataError: there is no such folder or manifest, or a row lacks a field, has an unknown one or
            one of the wrong type, or two rows have one name; the row and field are named.
    """
    path = Path(folder) / MANIFEST_NAME
    if not Path(folder).is_dir():
        raise DataError("no such programs folder", where=folder, expected="a folder made by `collect`")
    if not path.exists():
        raise DataError("no such file", where=path, expected="that of a programs folder, made by `collect`")
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("programs"), list):
        raise DataError("no list of programs", where=path, field="programs", expected="a list of rows")
    entries = [_parse(row, index, path) for index, row in enumerate(content["programs"])]
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"program {name!r} is listed twice", where=path, field="programs.name")
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _parse(row: object, index: int, path: Path) -> ProgramEntry:
    if not isinstance(row, Mapping):
        raise DataError(f"{row!r} is no row", where=path, field=f"programs[{index}]", expected="an object")
    label = f"programs[{index}]" + (f" ({row['name']})" if isinstance(row.get("name"), str) else "")
    kinds = {field.name: int if field.type == "int" else str for field in dataclasses.fields(ProgramEntry)}
    for field, kind in kinds.items():
        if field not in row:
            raise DataError(
                "missing", where=path, field=f"{label}.{field}", expected=f"a value of type {kind.__name__}"
            )
        value = row[field]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(
                f"{value!r}", where=path, field=f"{label}.{field}", expected=f"type {kind.__name__}"
            )
    unknown = sorted(set(row) - set(kinds))
    if unknown:
        raise DataError("unknown field", where=path, field=f"{label}.{unknown[0]}", expected=", ".join(kinds))
    return ProgramEntry(**row)


def save_manifest(folder: Path, entries: Iterable[ProgramEntry], toolchain: Mapping[str, str]) -> None:
    """Writes the manifest atomically; rows in order of name, `toolchain` as package -> version.

    Raises:
        DataError: the file cannot be written.
    """
    rows = [dataclasses.asdict(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    write_json(Path(folder) / MANIFEST_NAME, {"programs": rows, "toolchain": dict(toolchain)})


def toolchain_of(folder: Path) -> dict[str, str]:
    """Returns package -> version with which the corpus was built; empty if there is no manifest yet.

    Raises:
        DataError: the manifest cannot be read, or its `toolchain` is no object.
    """
    path = Path(folder) / MANIFEST_NAME
    content = read_json(path) if path.exists() else {}
    versions = content.get("toolchain", {}) if isinstance(content, dict) else {}
    if not isinstance(versions, dict):
        raise DataError(f"{versions!r}", where=path, field="toolchain", expected="versions by package")
    return {str(package): str(version) for package, version in versions.items()}


def read_program_bytes(folder: Path, entry: ProgramEntry) -> bytes:
    """Returns the uncompressed serialised HloModuleProto of a program; HLO text is converted.

    Raises:
        DataError: the file is missing, unreadable, truncated or corrupt, or holds another program than its
            row says; a user's program has no digest to compare.
        HloError: text that is not HLO, naming file and line.
    """
    path = Path(folder) / entry.file
    try:
        proto = decompress(read_bytes(path), where=str(path))
    except HloError as error:
        raise error.recast(DataError) from error
    if entry.is_user_program and (text := _hlo_text(proto)) is not None:
        return proto_from_text(text, where=str(path)).SerializeToString(deterministic=True)
    digest = digest_bytes(proto)
    if entry.sha256 and digest != entry.sha256:
        raise DataError(
            f"digest {digest[:12]}...",
            where=path,
            field="sha256",
            expected=f"{entry.sha256[:12]}..., as in the manifest; run `collect` to rebuild the program",
        )
    return proto


def user_programs(folder: Path) -> tuple[ProgramEntry, ...]:
    """Returns programs that a user dropped in `<folder>/user`, each an application `user:<stem>` of its own.

    Any `*.pb`, `*.hlo` or `*.hlo.txt` counts, also with `.zst` or `.gz` behind it, and any `*.txt` that
    begins as HLO text does; the folder may be absent. A link to nothing is a program that cannot be read.

    Raises:
        DataError: two files have one stem, or a `*.txt` cannot be read.
    """
    user_folder = Path(folder) / USER_FOLDER
    paths: dict[str, Path] = {}
    for path in sorted(user_folder.iterdir()) if user_folder.is_dir() else ():
        suffix = next((ending for ending in _USER_SUFFIXES if path.name.endswith(ending)), None)
        stem = path.name.removesuffix(suffix) if suffix else ""
        if path.is_dir() or not stem or stem.startswith("."):
            continue
        if suffix == _MAYBE_NOTES and _hlo_text(_beginning(path)) is None:
            continue
        if stem in paths:
            raise DataError(f"{path.name} and {paths[stem].name} share a stem", where=user_folder)
        paths[stem] = path
    return tuple(_user_entry(stem, path.name) for stem, path in sorted(paths.items()))


def _beginning(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read(_BEGINNING_BYTES)


def _hlo_text(data: bytes) -> str | None:
    """Returns bytes as text if they begin as HLO text does."""
    text = data.decode("utf-8-sig", errors="replace")
    return text if looks_like_text(text) else None


def all_programs(folder: Path) -> tuple[ProgramEntry, ...]:
    """Returns the corpus, then the user's own programs.

    Raises:
        DataError: see `load_manifest` and `user_programs`.
    """
    return load_manifest(folder) + user_programs(folder)


def _user_entry(stem: str, file_name: str) -> ProgramEntry:
    return ProgramEntry(
        name=f"user_{stem}", application=f"{_USER_APPLICATION}{stem}", builder="", step="", batch=0, dtype="",
        optimizer="", source="user", faithful="", reference="", instructions=0, sha256="",
        file=f"{USER_FOLDER}/{file_name}",
    )  # fmt: skip
