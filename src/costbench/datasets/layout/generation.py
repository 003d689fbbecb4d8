"""Generates layout shards: compiles a program under many layout configs and measures it under each.

A shard is one program on one chip. It depends only on the program, the chip and the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import zstandard

from costbench.artifacts import digest_bytes
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.datasets.generation import ShardSummary, SharedProgram, is_made, shard_key
from costbench.datasets.layout.columns import LAYOUT, LAYOUT_GENERATOR_VERSION
from costbench.datasets.layout.pricing import ProgramPricer
from costbench.datasets.layout.search import GeneticParams, Trials, search_genetically, search_randomly
from costbench.datasets.records import AnyArray
from costbench.datasets.storage import Shard, write_shard
from costbench.hardware.device import NUM_RUNS, Device
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.writer import module_to_bytes
from costbench.rng import stream
from costbench.target import Target

_ZSTD_LEVEL = 10


@dataclass(frozen=True)
class LayoutParams:
    """How many configs of a program are measured, and how they are found.

    Attributes:
        max_configs: per program, including the default and failed ones.
        strategy: `random`, `genetic`, or `both`, half each.
        genetic: the genetic search.
        max_instructions: larger programs are left out; 0 for no limit.
        memory_gib: main memory of a core; configs that need more fail, unless the default needs more, too.
        seed: of the search and of the device's noise.
    """

    max_configs: int = 1000
    strategy: Literal["random", "genetic", "both"] = "both"
    genetic: GeneticParams = field(default_factory=GeneticParams)
    max_instructions: int = 0
    memory_gib: float = 16.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_configs < 2:
            raise ValueError("max_configs: at least 2 are needed to compare")
        if self.strategy not in ("random", "genetic", "both"):
            raise ValueError(f"strategy is {self.strategy!r}, must be random, genetic or both")
        if self.max_instructions < 0:
            raise ValueError("max_instructions: at least 0")
        if self.memory_gib <= 0:
            raise ValueError("memory_gib: more than 0")


def layout_shard_path(folder: Path, chip: str, program: str) -> Path:
    """Returns the path of the layout shard of a program on a chip."""
    return folder / "layout" / chip / f"{program}.arrow"


@dataclass(frozen=True)
class LayoutTask:
    """One layout shard to make; a `Task` of `costbench.datasets.generation`.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        program: bytes of its HLO module, plain or zstd.
        target: the chip.
        params: of the layout task.
        folder: of the data set.
    """

    name: str
    application: str
    program: bytes
    target: Target
    params: LayoutParams
    folder: Path

    @property
    def path(self) -> Path:
        """Path of the shard."""
        return layout_shard_path(self.folder, self.target.name, self.name)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The one shard."""
        return (self.path,)

    @property
    def group(self) -> str:
        """A group of its own: it compiles the program under its own layouts and shares nothing."""
        return str(self.path)

    @property
    def weight(self) -> int:
        """Work estimate, which grows with the size of the program."""
        return len(self.program)

    @property
    def key(self) -> str:
        """Digest of all inputs; a shard with the same key is not made again."""
        return shard_key(self.program, [self.target], self.params, LAYOUT_GENERATOR_VERSION)

    def is_done(self) -> bool:
        """Whether the shard exists, is complete and was made from the same inputs."""
        return is_made(self.path, self.key)

    def make(self, shared: SharedProgram | None = None) -> None:
        """Searches, measures and writes the shard; a program without choices gets one with only its default.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel of the default program that cannot be lowered or priced.
            DataError: if the file cannot be written.
        """
        space = layout_space(module_from_bytes(self.program, where=self.name))
        pricer = ProgramPricer(space, Device(self.target, self.params.seed), self.params.memory_gib)
        trials = _search(space, pricer, self.params, self.name)
        columns = {**_space_columns(space), **trials.columns()}
        write_shard(self.path, columns, _metadata(self, pricer, trials, columns), LAYOUT)

    def summaries(self) -> tuple[ShardSummary, ...]:
        """Returns a summary of the finished shard."""
        shard = Shard.open(self.path)
        return (
            ShardSummary(
                task="layout",
                name=self.name,
                chip=self.target.name,
                num_kernels=int(str(shard.metadata["num_kernels"])),
                num_samples=len(shard["config_runtime_ns"]),
                num_failed=int(str(shard.metadata["num_failed"])),
                device_seconds=float(str(shard.metadata["device_seconds"])),
            ),
        )


def _search(space: LayoutSpace, pricer: ProgramPricer, params: LayoutParams, name: str) -> Trials:
    trials = Trials(space, pricer.measure)
    if not len(space.nodes):
        return trials
    # Random streams do not depend on the chip, so chips are compared on the same random configs.
    if params.strategy != "genetic":
        share = params.max_configs // 2 if params.strategy == "both" else params.max_configs
        search_randomly(space, trials, stream(params.seed, "layout random", name), share)
    if params.strategy != "random":
        rng = stream(params.seed, "layout genetic", name)
        search_genetically(space, trials, rng, params.max_configs, params.genetic)
    return trials


def _space_columns(space: LayoutSpace) -> dict[str, AnyArray]:
    nodes = space.nodes
    return {
        "program": np.frombuffer(_compressed(space.module), dtype=np.uint8),
        "node_computation": np.array([node.computation for node in nodes], dtype=np.int32),
        "node_position": np.array([node.position for node in nodes], dtype=np.int32),
        "node_opcode": np.array([int(node.opcode) for node in nodes], dtype=np.int16),
        "option_offsets": np.concatenate([[0], np.cumsum(space.num_choices)]).astype(np.int64),
        "option_layout": np.concatenate(
            [np.zeros((0, 18), np.int8), *(option_features(node) for node in nodes)]
        ),
    }


def _compressed(module: HloModule) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(module))


def _metadata(
    task: LayoutTask, pricer: ProgramPricer, trials: Trials, columns: Mapping[str, AnyArray]
) -> dict[str, object]:
    runtime = columns["config_runtime_ns"].astype(np.float64)
    return {
        "key": task.key,
        "task": "layout",
        "program": task.name,
        "application": task.application,
        "program_sha256": digest_bytes(task.program),
        "chip": task.target.name,
        "generator_version": LAYOUT_GENERATOR_VERSION,
        "params": asdict(task.params),
        "default_runtime_ns": int(runtime[0]),
        "num_failed": trials.num_failed,
        "num_kernels": pricer.num_kernels,
        "num_programs": pricer.num_programs,
        "device_seconds": round(NUM_RUNS * float(runtime.sum()) * 1e-9, 9),
    }
