"""Makes samples of the fusion task of the records of a real machine, in place of simulated measurements.

A recorded kernel becomes a row of a fusion shard, like a simulated one, and its runtime is that of the first
round of measuring. No tile size was chosen for it: its tile space has one element.

    fusion/CHIP/PROGRAM.part0000.arrow     kernels and their runtimes
    programs/CHIP/PROGRAM.hlo.pb.zst       program that they are views of
    recorded/CHIP/PROGRAM.json             second measurements, whole programs (`recorded_kernels`)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.arrays import I64
from costbench.artifacts import digest_bytes, digest_files, write_json
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.kernel_arrays import KernelArrays, lists_to_arrays
from costbench.compiler.trip_counts import assumed_trip_counts
from costbench.datasets.generation import Shards, SharedProgram, write_compiled_program
from costbench.datasets.machine_records import (
    MACHINE,
    XLA_DEFAULT,
    MachineRecords,
    machines,
    open_records,
)
from costbench.datasets.measured_kernels import compiled_program_path, fusion_part_path, kernel_columns
from costbench.datasets.record_types import FUSION
from costbench.datasets.recorded_kernels import (
    RECORDED,
    Measurements,
    WholeProgram,
    measurements_path,
    name_of_recorded,
)
from costbench.datasets.storage import ShardSummary, write_shard
from costbench.errors import DataError
from costbench.hardware.xla_cpu.program import row_major
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.programs.manifest import ProgramEntry
from costbench.store import Entry, key_of

_VERSION = 1


def find_records(folder: Path) -> Path:
    """Returns the folder of one machine: the given one, or the first machine's in a folder of several.

    Raises:
        DataError: if there are no records.
    """
    if (folder / MACHINE).is_file():
        return folder
    names = machines(folder) if folder.is_dir() else ()
    if not names:
        raise DataError("no records of a machine", where=folder, expected=f"a folder with {MACHINE}")
    return folder / names[0]


def records_of(folder: Path) -> MachineRecords:
    """Returns the records in the folder of a machine, which a process reads once."""
    return _records(folder, tuple(path.stat().st_mtime_ns for path in sorted(folder.iterdir())))


@lru_cache(1)
def _records(folder: Path, _times: tuple[int, ...]) -> MachineRecords:
    return open_records(folder.parent, folder.name)


@dataclass(frozen=True)
class RecordedTask:
    """The fusion shard of one program on a real machine, made from its records: a `generation.ShardTask`.

    Attributes:
        entry_of_program: row of the manifest.
        program: bytes of the HLO module that the kernels are views of.
        chip: name of the machine in results.
        records: folder of its records (`find_records`).
        digest: digest of these records.
        folder: folder of the data set.
        code: digest of the code that makes the shard.
    """

    entry_of_program: ProgramEntry
    program: bytes
    chip: str
    records: Path
    digest: str
    folder: Path
    code: str = ""

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.entry_of_program.name

    @property
    def paths(self) -> tuple[Path, ...]:
        """Path of the shard."""
        return (fusion_part_path(self.folder, self.chip, self.name, 0),)

    @property
    def key(self) -> str:
        """Returns the digest of all that the shard follows from but the code."""
        return key_of(self.chip, digest_bytes(self.program), self.digest, str(_VERSION))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps shard, program and measurements."""
        (shard,) = self.paths
        key = key_of(self.key, self.code)
        compiled = compiled_program_path(self.folder, name_of_recorded(self.chip, self.name))
        files = (shard, compiled, measurements_path(self.folder, self.chip, self.name))
        return (Entry(shard.with_name(f"{self.name}.json"), key, files),)

    @property
    def group(self) -> str:
        """Path of the shard: nothing is shared with other tasks."""
        return str(self.paths[0])

    @property
    def weight(self) -> int:
        """Returns an estimate of the work, which grows with the size of the program."""
        return len(self.program)

    def make(self, shared: SharedProgram | None = None) -> None:
        """Writes the shard, its program and its measurements.

        Raises:
            HloError: if the program cannot be read.
            DataError: if the records are not of this program, or a file cannot be written.
        """
        del shared
        (entry,), (path,) = self.entries, self.paths
        entry.begin()
        records = records_of(self.records)
        kernels, configs = (
            table[table["program"] == self.name].reset_index(drop=True)
            for table in (records.kernels, records.configs)
        )
        # Shards list the kernels of a computation together, as packed positions are those of one computation.
        kernels = kernels.sort_values("computation", kind="stable", ignore_index=True)
        # As the machine sees it: its compiler gives arrays row-major layouts before anything is measured.
        module = row_major(module_from_bytes(self.program, where=self.name))
        fingerprints = [bytes(value).hex() for value in kernels["fingerprint"]]
        self._check_fingerprints(kernels, fingerprints, ModuleFingerprints(module))
        columns = kernel_columns(_arrays(kernels), _integers(kernels["computation"]), fingerprints)
        ones = np.ones(len(kernels), np.int64)
        columns |= {
            "kernel_default_runs": _integers(kernels["default_runs"]),
            "kernel_space_size": ones,
            "kernel_tile": ones - 1,
            "kernel_runtime_ns": _integers(kernels["first_ns"]),
            "dropped_fingerprint": np.zeros((0, 16), np.uint8),
        }
        metadata = {
            "key": self.key,
            "task": FUSION.name,
            "program": self.name,
            "application": self.entry_of_program.application,
            "builder": self.entry_of_program.builder,
            "program_sha256": digest_bytes(self.program),
            "chip": self.chip,
            RECORDED: True,
            "part": 0,
            "last": True,
            "num_configs": len(configs),
            "num_failed": 0,
            "num_too_large": 0,
            "device_seconds": round(_seconds(configs), 9),
        }
        write_compiled_program(
            compiled_program_path(self.folder, name_of_recorded(self.chip, self.name)), module
        )
        measurements = Measurements(
            tuple(_integers(kernels["second_ns"]).tolist()),
            tuple(_whole_programs(configs, fingerprints, module)),
        )
        write_json(measurements_path(self.folder, self.chip, self.name), asdict(measurements))
        write_shard(path, columns, metadata, FUSION)
        summary = ShardSummary(
            FUSION.name, self.name, self.chip, len(kernels), len(kernels), 0, _seconds(configs)
        )
        entry.keep(Shards(entry.key, (summary,)))

    def _check_fingerprints(
        self, kernels: pd.DataFrame, recorded: list[str], fingerprints: ModuleFingerprints
    ) -> None:
        """Raises DataError unless the positions in the records are those of this program."""
        for computation, rows in kernels.groupby("computation"):
            known = fingerprints.kernels(int(str(computation)), _arrays(rows))
            for row, fingerprint in zip(rows.index, known, strict=True):
                if fingerprint.hex() != recorded[row]:
                    raise DataError(
                        f"kernel {row} of {self.name} has the fingerprint {recorded[row]}",
                        where=self.records,
                        field="fingerprint",
                        expected=f"{fingerprint.hex()}, that of the program's instructions",
                    )


def records_digest(folder: Path) -> str:
    """Returns the digest of the tables in the folder of a machine."""
    return digest_files(sorted(folder.glob("*.parquet")), folder)[:16]


def _integers(column: pd.Series) -> I64:
    return column.to_numpy(dtype=np.int64)


def _arrays(kernels: pd.DataFrame) -> KernelArrays:
    packed = [lists_to_arrays(list(kernels[part])) for part in ("instructions", "inputs", "outputs")]
    return KernelArrays(*(array for pair in packed for array in pair))


def _seconds(configs: pd.DataFrame) -> float:
    """Returns the time that all timed runs of a program took."""
    rounds = ((configs[f"{name}_median_ns"], configs[f"{name}_repeats"]) for name in ("first", "second"))
    return 1e-9 * float(sum((median * repeats).sum() for median, repeats in rounds))


def _whole_programs(configs: pd.DataFrame, fingerprints: list[str], module: HloModule) -> list[WholeProgram]:
    """Returns the configs that ran as they are, each with its kernels that took time.

    The compiler made no operation of the others. What it fused by itself is left out, as only some of its
    kernels are known, and so is a program with loops of which only a bound says how often they run.
    """
    if assumed_trip_counts(module):
        return []
    row_of = {fingerprint: row for row, fingerprint in enumerate(fingerprints)}
    programs = []
    for config in configs[configs["origin"] != XLA_DEFAULT].to_dict("records"):
        names = (bytes(value).hex() for value in config["fingerprints"])
        runs_of = {
            row_of[name]: int(runs)
            for name, runs in zip(names, config["runs"], strict=True)
            if name in row_of
        }
        if runs_of:
            rows, runs = tuple(runs_of), tuple(runs_of.values())
            times = (int(config["first_ns"]), int(config["second_ns"]))
            programs.append(WholeProgram(str(config["origin"]), rows, runs, *times))
    return programs
