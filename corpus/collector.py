"""Builds the corpus: every row of the table becomes a normalised canonical proto and a manifest row.

Each program is made in a process of its own, because JAX's tracing caches let what was traced earlier
decide how helper functions are shared. Programs that are already there, with the digest and the
description that the manifest gives them, are left alone, so a killed run continues where it was.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import zstandard

from corpus.lowering import lower_for_tpu
from corpus.processor_programs import find_any_spec
from corpus.programs import SPECS
from corpus.specs import ProgramSpec
from costbench.artifacts import digest_bytes, remove_stale_temporaries, seal, unseal, write_bytes
from costbench.errors import CostbenchError, DataError
from costbench.programs.canonical import canonicalize, count_instructions, normalize
from costbench.programs.manifest import (
    MANIFEST_NAME,
    USER_FOLDER,
    ProgramEntry,
    load_manifest,
    read_program_bytes,
    save_manifest,
    toolchain_of,
)

ZSTD_LEVEL = 19
_PACKAGES = ("jax", "jaxlib", "keras", "zstandard")

# (programs done, programs in all, name of the one just done)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Collected:
    """Names of the programs that a run of `collect` handled, sorted."""

    built: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def build_program(spec: ProgramSpec) -> bytes:
    """Lowers, canonicalises and normalises one program; returns the serialised HloModuleProto.

    Raises:
        DataError: the packages of the `corpus` extra are missing or of other versions.
    """
    toolchain()
    raw = lower_for_tpu(spec.build, spec.context(), spec.optimizer)
    return normalize(canonicalize(raw), spec.name)


def compress(proto: bytes) -> bytes:
    """Returns one zstd frame, at a fixed level by one thread, with size and checksum: always equal bytes."""
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL, threads=0, write_checksum=True).compress(proto)


def toolchain() -> dict[str, str]:
    """Returns package -> version of what decides the programs' bytes.

    Raises:
        DataError: one of them is not installed.
    """
    try:
        return {package: version(package) for package in _PACKAGES}
    except PackageNotFoundError as error:
        raise DataError(
            f"{error.name} is not installed", expected="the extra `corpus` (jax, keras)"
        ) from error


def collect(
    folder: Path,
    names: Sequence[str] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    force: bool = False,
) -> Collected:
    """Builds the programs that are missing from `folder` or differ from their row, and the manifest.

    Args:
        folder: folder of programs and manifest.
        names: names of programs to build; all of the table if None, and then programs that the table no
            longer has are removed.
        jobs: number of programs built at a time.
        progress: function that is called after each program.
        force: whether to build also programs that exist.

    Raises:
        ChoiceError: a name is not in the table.
        DataError: the corpus extra is missing, a file cannot be written, or a program fails to build.
    """
    folder = Path(folder)
    specs = SPECS if names is None else tuple(find_any_spec(name) for name in sorted(set(names)))
    versions = toolchain()
    remove_stale_temporaries(folder)
    if force:
        unseal(folder)
    listed = load_manifest(folder) if (folder / MANIFEST_NAME).exists() else ()
    entries = {entry.name: entry for entry in listed}
    is_same_toolchain = versions == toolchain_of(folder)
    stale = [
        spec for spec in specs if force or not is_same_toolchain or not _is_current(folder, spec, entries)
    ]
    for done, entry in enumerate(_build_all(folder, stale, jobs), start=1):
        entries[entry.name] = entry
        save_manifest(folder, entries.values(), versions)
        if progress is not None:
            progress(done, len(stale), entry.name)
    removed = _remove_unlisted(folder, entries) if names is None else ()
    save_manifest(folder, entries.values(), versions)
    seal(folder, "`git checkout`, or `costbench collect --force`", without=USER_FOLDER)
    built = {spec.name for spec in stale}
    unchanged = tuple(sorted(spec.name for spec in specs if spec.name not in built))
    return Collected(tuple(sorted(built)), unchanged, removed)


def _is_current(folder: Path, spec: ProgramSpec, entries: dict[str, ProgramEntry]) -> bool:
    entry = entries.get(spec.name)
    if entry is None or entry != describe(spec, entry.instructions, entry.sha256):
        return False
    try:
        read_program_bytes(folder, entry)
    except DataError:
        return False
    return True


def _remove_unlisted(folder: Path, entries: dict[str, ProgramEntry]) -> tuple[str, ...]:
    listed = {spec.name for spec in SPECS}
    unlisted = tuple(sorted(set(entries) - listed))
    for name in unlisted:
        (folder / entries.pop(name).file).unlink(missing_ok=True)
    return unlisted


def describe(spec: ProgramSpec, instructions: int, sha256: str) -> ProgramEntry:
    """Returns the manifest row of a program with this many instructions and this digest."""
    return ProgramEntry(
        name=spec.name, application=spec.application, builder=spec.builder, step=spec.step,
        batch=spec.batch, dtype=spec.dtype, optimizer=spec.optimizer, source=spec.source,
        faithful=spec.faithful, reference=spec.reference, instructions=instructions, sha256=sha256,
        file=f"{spec.name}.hlo.pb.zst",
    )  # fmt: skip


def _build_all(folder: Path, specs: Sequence[ProgramSpec], jobs: int) -> Iterator[ProgramEntry]:
    if not specs:
        return
    # Spawned, not forked: XLA's threads do not survive a fork. One program per process: see above.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_quiet, max_tasks_per_child=1) as pool:
        futures = {pool.submit(_build_one, folder, spec.name): spec.name for spec in specs}
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            problem = "a process that built a program died (out of memory?)"
            raise DataError(
                problem, where=folder, expected="another run, which keeps what is done"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _quiet() -> None:
    os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")


def _build_one(folder: Path, name: str) -> ProgramEntry:
    spec = find_any_spec(name)
    try:
        proto = build_program(spec)
    except CostbenchError:
        raise
    except Exception as error:
        raise DataError(f"cannot be built: {type(error).__name__}: {error}", where=name) from error
    entry = describe(spec, count_instructions(proto), digest_bytes(proto))
    write_bytes(folder / entry.file, compress(proto))
    return entry
