"""The driver: every task is done once, done tasks are kept, and what is told follows what happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from costbench.artifacts import write_text
from costbench.datasets.generation import (
    Backend,
    Shards,
    ShardSummary,
    ShardTask,
    SharedProgram,
    generate,
    shard_key,
    summaries_of,
    write_compiled_program,
)
from costbench.datasets.tile_generation import TileParams
from costbench.errors import UnsupportedKernelError
from costbench.hlo.reader import module_from_bytes
from costbench.store import Entry
from costbench.target import load_target


@dataclass(frozen=True)
class Written:
    """Writes its own name, a mark for every time it is made."""

    name: str
    folder: Path
    weight: int = 1
    broken: bool = False
    group_name: str = ""

    @property
    def group(self) -> str:
        return self.group_name or self.name

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.folder / f"{self.name}.arrow", self.folder / f"{self.name}-2.arrow")

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (Entry(self.folder / f"{self.name}.json", self.name, self.paths),)

    def make(self, shared: SharedProgram | None = None) -> None:
        if self.broken:
            raise UnsupportedKernelError("no tile", where=self.name)
        with (self.folder / "made").open("a") as file:
            file.write(self.name)
        for path in self.paths:
            write_text(path, self.name)
        summaries = (ShardSummary("tile", self.name, path.stem, 1, 2, 0, 0.0) for path in self.paths)
        self.entries[0].keep(Shards(self.name, tuple(summaries)))


def test_what_is_there_is_kept_and_the_heaviest_comes_first(tmp_path: Path) -> None:
    tasks: list[ShardTask] = [
        Written(name, tmp_path, weight) for name, weight in (("a", 1), ("b", 5), ("c", 3))
    ]
    existing: list[ShardSummary] = []
    done: list[ShardSummary] = []
    Written("c", tmp_path).make()
    summaries = generate(tasks, Backend(), done.append, existing.append)
    assert [summary.chip for summary in summaries] == ["a", "a-2", "b", "b-2", "c", "c-2"]
    assert [summary.name for summary in existing] == ["c", "c"]
    assert [summary.name for summary in done] == ["b", "b", "a", "a"]
    assert (tmp_path / "made").read_text() == "cba"
    assert generate(tasks, Backend()) == summaries
    assert (tmp_path / "made").read_text() == "cba"


def test_a_group_is_done_together_where_its_weights_add_up_to_most(tmp_path: Path) -> None:
    tasks: list[ShardTask] = [
        Written("a", tmp_path, 3, group_name="ac"),
        Written("b", tmp_path, 4),
        Written("c", tmp_path, 2, group_name="ac"),
        Written("d", tmp_path, 9, group_name="ac"),
    ]
    tasks[3].make()
    summaries = generate(tasks, Backend())
    assert (tmp_path / "made").read_text() == "dacb"
    assert [summary.name for summary in summaries] == list("aabbccdd")


def test_a_group_reads_compiles_and_writes_its_program_once(tmp_path: Path, repository: Path) -> None:
    data = (repository / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst").read_bytes()
    shared, path = SharedProgram(), tmp_path / "rnn.hlo.pb.zst"
    prepared = shared.compile(data, "rnn", path)
    written = path.read_bytes()
    path.unlink()
    assert shared.compile(data, "rnn", path) is prepared
    assert not path.exists()
    other = shared.compile(data, "rnn", tmp_path / "other.hlo.pb.zst")
    assert other is not prepared
    assert (tmp_path / "other.hlo.pb.zst").read_bytes() == written


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_through_and_finished_shards_stay(tmp_path: Path, jobs: int) -> None:
    tasks: list[ShardTask] = [Written("good", tmp_path, 2), Written("bad", tmp_path, broken=True)]
    with pytest.raises(UnsupportedKernelError, match="bad: no tile"):
        generate(tasks, Backend(jobs=jobs))
    assert summaries_of(tasks[0]) is not None or jobs == 2
    assert summaries_of(tasks[1]) is None


def test_a_compiled_program_is_written_when_it_differs(tmp_path: Path, repository: Path) -> None:
    source = repository / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
    module = module_from_bytes(source.read_bytes(), where="rnn")
    path = tmp_path / "programs" / "rnn.hlo.pb.zst"
    write_compiled_program(path, module)
    first = path.stat()
    write_compiled_program(path, module)
    assert path.stat().st_ino == first.st_ino
    assert module_from_bytes(path.read_bytes(), where="rnn").name == module.name
    path.write_bytes(zstandard.compress(b"older"))
    write_compiled_program(path, module)
    assert path.stat().st_size == first.st_size


def test_a_shard_key_covers_every_input() -> None:
    v2, v3 = load_target("tpu_v2"), load_target("tpu_v3")
    inputs = (b"program", (v2,), TileParams(), 1)
    changed = [
        (b"another", *inputs[1:]),
        (b"program", (v3,), *inputs[2:]),
        (b"program", (v2, v3), *inputs[2:]),
        (*inputs[:2], TileParams(seed=1), 1),
        (*inputs[:3], 2),
    ]
    keys = {shard_key(*one) for one in (inputs, inputs, *changed)}
    assert len(keys) == 1 + len(changed)
    assert {len(key) for key in keys} == {32}
