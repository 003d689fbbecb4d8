"""Writes profiled kernels as a data set of the fusion task, whose chip is the profile's device.

Kernels of a profile were compiled by XLA for a device whose tile sizes nobody tells, so their tiles are those
that the compiler's tile model chooses for a known chip: features and estimates need one.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from costbench.arrays import AnyArray
from costbench.artifacts import digest_bytes, digest_file, write_json
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.generation import write_compiled_program
from costbench.datasets.measured_kernels import compiled_program_path, fusion_part_path, kernel_columns
from costbench.datasets.profiles.kernels import LeftOut, ProfiledKernel, ProfiledProgram, join, read_dumps
from costbench.datasets.profiles.xplane import find_profiles, read_profile
from costbench.datasets.record_types import FUSION
from costbench.datasets.records import digests_of
from costbench.datasets.storage import write_shard
from costbench.errors import DataError, UnsupportedKernelError
from costbench.hlo.conversion import module_to_bytes
from costbench.target import Target, available_targets, load_target

DEFAULT_CHIP = "tpu_v3"
CARD_FILE = "profile.json"
NO_TILE = "kernels of which no tile fits the chip"
NO_PRICE = "kernels that the chip does not run"
VERSION = 1


@dataclass(frozen=True)
class ImportedProgram:
    """The samples of one program.

    Attributes:
        name: name of the program in the data set.
        executions: how often it ran while profiled.
        kernels: number of distinct kernels.
        operations: number of operations that they are.
        run_ns: time of one run in kernels: sum of runs times runtime, in nanoseconds.
        spread: median over kernels of median over minimum of a kernel's runs.
    """

    name: str
    executions: int
    kernels: int
    operations: int
    run_ns: int
    spread: float


@dataclass(frozen=True)
class LeftOutPart:
    """Operations that became no samples.

    Attributes:
        reason: reason.
        operations: number of operations.
        share: share of the self time of all operations that ran, from 0 to 1.
        example: name of the first.
    """

    reason: str
    operations: int
    share: float
    example: str


@dataclass(frozen=True)
class ImportedProfiles:
    """What an import made, also the content of `profile.json`.

    Attributes:
        chip: name of the device, as folders of the data set have it.
        device: name of the device, as the profile has it.
        tiles_of: chip for which tile sizes were chosen, by name or as a YAML file.
        programs: programs with samples, by name.
        left_out: operations that became none, by reason.
        share: share of the self time of all operations that is in samples.
        num_damaged: number of events that were passed over.
        files: SHA-256 of the profiles by path inside the folder.
    """

    chip: str
    device: str
    tiles_of: str
    programs: tuple[ImportedProgram, ...]
    left_out: tuple[LeftOutPart, ...]
    share: float
    num_damaged: int
    files: Mapping[str, str]


def import_profiles(
    logdir: Path, folder: Path, *, dump: Path | None = None, tiles_of: str = ""
) -> ImportedProfiles:
    """Reads profiles and writes the kernels in them as a data set of the fusion task.

    Args:
        logdir: folder given to `jax.profiler.trace`, or one `.xplane.pb` file.
        folder: folder of the data set; files of an earlier import are written again.
        dump: compiled modules that the profiles do not hold, a file or a folder; None for none.
        tiles_of: chip for which tile sizes are chosen, by name or as a YAML file; empty for the device where
            its chip is known, and for `tpu_v3` otherwise.

    Raises:
        DataError: if there are no profiles, one is damaged, they are of different devices, or no operation
            becomes a sample.
        HloError: for a module that is none.
        TargetError: for an unknown chip.
    """
    dumps = () if dump is None else read_dumps(dump)
    left_out, programs = LeftOut(), []
    profiles = [read_profile(path) for path in find_profiles(logdir)]
    devices = sorted({profile.device for profile in profiles})
    if len(devices) > 1:
        raise DataError(f"profiles of {', '.join(devices)}", where=logdir, expected="profiles of one device")
    for profile in profiles:
        programs += join(profile, dumps, left_out)
    chip = re.sub(r"\W+", "_", devices[0].strip().lower())
    tiles_of = tiles_of or (chip if chip in available_targets() else DEFAULT_CHIP)
    target = load_target(tiles_of)
    written = [
        _write_program(name, program, chip, target, folder, left_out)
        for name, program in _named(_merge_programs(programs)).items()
    ]
    in_samples_ns = sum(ns for _, ns in written)
    total_ns = in_samples_ns + sum(left_out.time_ns.values())
    imported = ImportedProfiles(
        chip=chip,
        device=devices[0],
        tiles_of=tiles_of,
        programs=tuple(program for program, _ in written if program.kernels),
        left_out=tuple(
            LeftOutPart(
                reason, count, left_out.time_ns[reason] / max(total_ns, 1.0), left_out.example[reason]
            )
            for reason, count in sorted(left_out.operations.items())
        ),
        share=in_samples_ns / max(total_ns, 1.0),
        num_damaged=sum(profile.num_damaged for profile in profiles),
        files={_inside(profile.path, logdir): digest_file(profile.path) for profile in profiles},
    )
    if not imported.programs:
        reasons = "; ".join(f"{part.operations} {part.reason}" for part in imported.left_out)
        expected = "compiled modules, in the profile or by --hlo"
        raise DataError(f"no kernels: {reasons}", where=logdir, expected=expected)
    write_json(folder / CARD_FILE, asdict(imported))
    return imported


def _inside(path: Path, folder: Path) -> str:
    return path.name if path == folder else path.relative_to(folder).as_posix()


def _merge_programs(programs: Iterable[ProfiledProgram]) -> list[ProfiledProgram]:
    """Merges programs of equal modules, as several hosts and sessions profile them."""
    by_module: dict[str, list[ProfiledProgram]] = {}
    for program in programs:
        by_module.setdefault(digest_bytes(module_to_bytes(program.module)), []).append(program)
    return [parts[0] if len(parts) == 1 else _merge(parts) for parts in by_module.values()]


def _merge(parts: Sequence[ProfiledProgram]) -> ProfiledProgram:
    module, kernels = parts[0].module, {kernel.operation: kernel for kernel in parts[0].kernels}
    for part in parts[1:]:
        for kernel in part.kernels:
            # Kernels are views of the module of their own part, which is equal but not the same.
            view = replace(kernel.kernel, module=module)
            earlier = kernels.get(kernel.operation)
            times = (*(earlier.run_ns if earlier else ()), *kernel.run_ns)
            kernels[kernel.operation] = replace(kernel, kernel=view, run_ns=times)
    return replace(
        parts[0], kernels=tuple(kernels.values()), executions=sum(part.executions for part in parts)
    )


def _named(programs: Iterable[ProfiledProgram]) -> dict[str, ProfiledProgram]:
    """Returns programs by the names of their modules; a number tells programs of one name apart."""
    named: dict[str, ProfiledProgram] = {}
    for program in programs:
        stem = re.sub(r"[^\w.-]+", "_", program.name) or "program"
        names = itertools.chain([stem], (f"{stem}.{number}" for number in itertools.count(2)))
        named[next(name for name in names if name not in named)] = program
    return named


@dataclass(frozen=True, eq=False)
class _Sample:
    """A distinct kernel: its view, its tile and the operations that it is."""

    profiled: list[ProfiledKernel]
    tile: int
    space_size: int

    @property
    def runs(self) -> int:
        return sum(kernel.runs for kernel in self.profiled)

    @property
    def runtime_ns(self) -> int:
        """Mean, over the places at which it runs, of the fastest run; 1 ns at least."""
        total_ns = sum(kernel.runs * min(kernel.run_ns) for kernel in self.profiled)
        return max(1, round(total_ns / self.runs))


def _write_program(
    name: str, program: ProfiledProgram, chip: str, target: Target, folder: Path, left_out: LeftOut
) -> tuple[ImportedProgram, float]:
    """Writes the samples of a program; returns what they are and the self time of all their runs."""
    samples = _samples(program, target, left_out)
    profiled = [kernel for sample in samples.values() for kernel in sample.profiled]
    total_ns = sum(sum(kernel.run_ns) for kernel in profiled)
    imported = ImportedProgram(
        name=name,
        executions=program.executions,
        kernels=len(samples),
        operations=len(profiled),
        run_ns=sum(sample.runs * sample.runtime_ns for sample in samples.values()),
        spread=statistics.median(
            [statistics.median(kernel.run_ns) / max(min(kernel.run_ns), 1.0) for kernel in profiled] or [1.0]
        ),
    )
    if samples:
        write_compiled_program(compiled_program_path(folder, name), program.module)
        metadata = {
            "task": "fusion",
            "program": name,
            "application": name,
            "program_sha256": digest_bytes(module_to_bytes(program.module)),
            "chip": chip,
            "generator_version": VERSION,
            "tiles_of": target.name,
            "num_failed": 0,
            "device_seconds": round(total_ns * 1e-9, 9),
            "part": 0,
            "last": True,
            "num_configs": 1,
        }
        write_shard(fusion_part_path(folder, chip, name, 0), _columns(samples), metadata, FUSION)
    return imported, total_ns


def _samples(program: ProfiledProgram, target: Target, left_out: LeftOut) -> dict[str, _Sample]:
    """Returns the distinct kernels of a program by fingerprint."""
    lowering, model = Lowering(program.module), AnalyticalModel(target.architecture)
    samples: dict[str, _Sample] = {}
    for profiled in program.kernels:
        kernel, time_ns = profiled.kernel, sum(profiled.run_ns)
        try:
            if kernel.fingerprint not in samples:
                space = nest_tile_space(lowering.loop_nest(kernel), target.architecture)
                if not space.has_legal_tile:
                    left_out.add(NO_TILE, profiled.operation, time_ns)
                    continue
                extents = model.choose(space)
                samples[kernel.fingerprint] = _Sample([], space.number(extents), space.size)
        except UnsupportedKernelError as error:
            left_out.add(f"{NO_PRICE}: {error.problem}", profiled.operation, time_ns)
        else:
            samples[kernel.fingerprint].profiled.append(profiled)
    return samples


def _columns(samples: Mapping[str, _Sample]) -> dict[str, AnyArray]:
    views = [sample.profiled[0].kernel for sample in samples.values()]
    computations = np.array([view.computation for view in views], np.int64)
    values = {
        "kernel_default_runs": [sample.runs for sample in samples.values()],
        "kernel_space_size": [sample.space_size for sample in samples.values()],
        "kernel_tile": [sample.tile for sample in samples.values()],
        "kernel_runtime_ns": [sample.runtime_ns for sample in samples.values()],
    }
    return {
        **kernel_columns(kernel_arrays(view.positions for view in views), computations, tuple(samples)),
        **{key: np.array(column, np.int64) for key, column in values.items()},
        "dropped_fingerprint": digests_of(()),
    }
