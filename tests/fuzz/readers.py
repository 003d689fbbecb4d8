"""Every kind of file that comes from outside: how one is changed, and what is done with the result.

A mutation ends in a `CostbenchError` or in a result; whatever else it raises is a defect.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from google.protobuf.message import Message

from benchmarks.synthetic_kernels import kernel_samples
from costbench.arrays import AnyArray
from costbench.artifacts import digest_file, read_json
from costbench.compiler.program import compile_program, unique_kernels
from costbench.compiler.tile_space import tile_space
from costbench.datasets.profiles.importing import import_profiles
from costbench.datasets.storage import Shard, write_shard
from costbench.datasets.tile_generation import TileParams
from costbench.datasets.tpugraphs.npz import convert_layout_npz, read_tile_npz
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.datasets.tpugraphs.raw import read_layout_tuning, read_tile_tuning
from costbench.errors import CostbenchError
from costbench.experiments.archive import FILES, read_packed_table, table_of
from costbench.hardware.simulator import simulate
from costbench.hlo.conversion import module_to_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.module import HloModule
from costbench.hlo.reader import read_module
from costbench.hlo.text.parser import module_from_text
from costbench.metrics.rows import MetricRow, read_rows, write_rows
from costbench.models.checkpoint import MODEL_FILE, load_checkpoint, save_checkpoint
from costbench.models.graph_batch import FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.model_files import WEIGHTS_FILE
from costbench.models.spec import NetSpec
from costbench.params import load_section
from costbench.rng import stream
from costbench.target import load_target
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.imported.importing import read_records, read_tuning_table
from costbench_schedules.records.imported.parquet import write_parquet
from costbench_schedules.records.table import empty_table, read_table, write_table
from costbench_schedules.records.tune_log import read_log
from costbench_schedules.spaces.space import ScheduleSpace
from tests.datasets.profiles import tpu_profile
from tests.datasets.tile_columns import metadata, tile_columns
from tests.datasets.tpugraphs.public_arrays import layout_arrays, tile_arrays
from tests.datasets.tuning_files import layout_file, tile_file
from tests.fuzz.mutators import mutated_bytes, mutated_json, mutated_message, mutated_text
from tests.fuzz.programs import TEXTS, programs
from tests.schedules.records.imported.tuning_files import cache_file, t4_file

CHIP = load_target("tpu_v3")
CORPUS = Path(__file__).parent / "corpus"
"""Files that once ended otherwise, by kind."""
_FROM_CORPUS = 0.1
"""Share of mutations that start from one of these."""
_TILES = 3
Make = Callable[[np.random.Generator, Path], Path]
"""Writes one changed file into a folder."""
Use = Callable[[Path], object]
"""Reads a file and works with what it holds."""


def _price_program(path: Path) -> None:
    _price(read_module(path))


def _price_text(path: Path) -> None:
    _price(module_from_text(path.read_text(errors="replace"), where=str(path)))


def _price(module: HloModule) -> None:
    """Compiles a program, and runs some tile sizes of each of its kernels."""
    for unique in unique_kernels(compile_program(inline_fusions(module), "program")):
        space = tile_space(unique.kernel, CHIP.architecture)
        if space.has_legal_tile:
            ids = space.sample(stream(0, "fuzz"), _TILES)
            parts = simulate(unique.kernel, space.decode(ids), CHIP)
            assert np.isfinite(parts.runtime_ns).all(), "a runtime that is no number"


def _written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@cache
def _protos() -> list[Message]:
    return [module_to_proto(module) for module in programs()]


def _program(rng: np.random.Generator, folder: Path) -> Path:
    """A program with one to three fields changed."""
    protos = _protos()
    message = mutated_message(protos[int(rng.integers(len(protos)))], rng, int(rng.integers(1, 4)))
    return _written(folder, "program.hlo.pb", message.SerializeToString())


def _program_bytes(rng: np.random.Generator, folder: Path) -> Path:
    protos = _protos()
    data = protos[int(rng.integers(len(protos)))].SerializeToString()
    if rng.random() < 0.3:
        data = zstandard.ZstdCompressor().compress(data)
    return _written(folder, "program.hlo.pb", mutated_bytes(data, rng))


def _text(rng: np.random.Generator, folder: Path) -> Path:
    text = TEXTS[int(rng.integers(len(TEXTS)))]
    return _written(folder, "program.hlo", mutated_text(text, rng, _WORDS).encode())


def _tuning(rng: np.random.Generator, folder: Path) -> Path:
    runs = [{"output_bounds": [1, 2], "time": 100, "default": True}, {"output_bounds": [2, 1]}]
    message = tuning_pb2.TuningData.FromString(tile_file(folder / "t.pb", runs, kernels=2).read_bytes())
    return _written(folder, "t.pb", mutated_message(message, rng, 2).SerializeToString())


def _layouts(rng: np.random.Generator, folder: Path) -> Path:
    runs = [{"layouts": [[[1, 0], [0, 1]]], "default": True}, {"layouts": [[[0, 1], [0, 1]]]}]
    data = layout_file(folder / "l.pb", [1], runs).read_bytes()
    message = mutated_message(tuning_pb2.ModuleTuningData.FromString(data), rng, 2)
    return _written(folder, "l.pb", message.SerializeToString())


def _profile(rng: np.random.Generator, folder: Path) -> Path:
    return _written(folder, "x.xplane.pb", mutated_bytes(tpu_profile(folder / "trace").read_bytes(), rng))


def _import_profile(path: Path) -> None:
    import_profiles(path, path.parent / "data")


def _npz(rng: np.random.Generator, folder: Path) -> Path:
    """Arrays changed, or the bytes of the archive."""
    arrays = tile_arrays() if rng.random() < 0.5 else layout_arrays()
    if rng.random() < 0.6:
        key = sorted(arrays)[int(rng.integers(len(arrays)))]
        change = _ARRAY_CHANGES[int(rng.integers(len(_ARRAY_CHANGES)))]
        arrays[key] = change(arrays[key])
        np.savez(folder / "x.npz", **arrays)
        return folder / "x.npz"
    np.savez(folder / "x.npz", **arrays)
    return _written(folder, "x.npz", mutated_bytes((folder / "x.npz").read_bytes(), rng))


_ARRAY_CHANGES: tuple[Callable[[AnyArray], AnyArray], ...] = (
    lambda a: a[:0],
    lambda a: a[None],
    lambda a: a.ravel(),
    lambda a: a.astype(np.complex64),
    lambda a: a.astype(object),
    lambda a: a.astype("U4"),
    lambda a: np.concatenate([a, a]),
    lambda a: np.full_like(a, np.iinfo(a.dtype).max if a.dtype.kind in "iu" else np.nan),
    lambda a: -a.astype(np.float64) - 1,
    lambda a: a.reshape(a.shape[::-1]),
)


def _shard(rng: np.random.Generator, folder: Path) -> Path:
    path = folder / "x.arrow"
    write_shard(path, tile_columns(), metadata())
    return _written(folder, "x.arrow", mutated_bytes(path.read_bytes(), rng))


def _all_columns(path: Path) -> None:
    shard = Shard.open(path)
    for key in shard.keys:
        assert len(shard[key]) >= 0


def _both_npz(path: Path) -> None:
    try:
        read_tile_npz(path)
    except CostbenchError:
        convert_layout_npz(path, path.with_suffix(".arrow"), name="x", collection="layout:xla:random")


def _chip(rng: np.random.Generator, folder: Path) -> Path:
    """The file of a chip, a line of YAML changed."""
    source = resources.files("costbench.chips").joinpath("tpu_v3.yaml").read_text()
    return _written(folder, "chip.yaml", mutated_text(source, rng, _YAML_WORDS).encode())


def _params(rng: np.random.Generator, folder: Path) -> Path:
    return _written(folder, "params.yaml", mutated_text(_PARAMS, rng, _YAML_WORDS).encode())


def _read_params(path: Path) -> None:
    load_section(path, "generate", _Generate)


@dataclass(frozen=True)
class _Generate:
    """A section with every kind of field."""

    tile: TileParams
    programs: tuple[str, ...]
    share: float
    kind: Literal["a", "b"] = "a"
    limit: int | None = None
    whole: bool = True


_PARAMS = """
generate:
  tile: {max_tiles_per_kernel: 100, seed: 1}
  programs: [a, b, "c"]
  share: 2e-3
  kind: b
  limit: null
  whole: false
"""
_WORDS = (
    "{",
    "}",
    "(",
    "[",
    "]",
    ")",
    '"',
    ",",
    "=",
    "-1",
    "99999999999999999999",
    "f32[",
    "%",
    "ROOT ",
    "/*",
)
_YAML_WORDS = (
    "{",
    "]",
    ": ",
    "- ",
    "&a ",
    "*a ",
    "!!python/object:os.system ",
    "\t",
    "9" * 400,
    "'",
    "|",
    "~",
    "1e999",
    "\0",
)


def _json_text(rng: np.random.Generator, folder: Path) -> Path:
    value = {"a": [1, 2.5e3, -1], "b": {"c": None, "d": "e\u0301"}, "f": [True, {}]}
    return _written(folder, "x.json", mutated_text(json.dumps(value, indent=1), rng, _JSON_WORDS).encode())


@cache
def _model_files() -> tuple[str, bytes]:
    """Returns description and weights of a small network."""
    scaling = FeatureScaling.fit([kernel_samples(0, 6, 7)])
    spec = NetSpec(hidden=8, opcode_embedding=4, static_features="kernel", columns=("sum",))
    with tempfile.TemporaryDirectory() as name:
        save_checkpoint(name, LearnedCostNet(spec, scaling.sizes, 5), scaling, "log_runtime_ns")
        return (Path(name) / MODEL_FILE).read_text(), (Path(name) / WEIGHTS_FILE).read_bytes()


def _model(rng: np.random.Generator, folder: Path) -> Path:
    """The description of a network, a value of it changed."""
    content = mutated_json(json.loads(_model_files()[0]), rng)
    return _written(folder, MODEL_FILE, json.dumps(content).encode())


def _load_model(path: Path) -> None:
    (path.parent / WEIGHTS_FILE).write_bytes(_model_files()[1])
    if path.name != MODEL_FILE:
        shutil.copy(path, path.parent / MODEL_FILE)
    load_checkpoint(path.parent)


def _rows(rng: np.random.Generator, folder: Path) -> Path:
    texts = {name: "x" for name, kind in MetricRow.__annotations__.items() if kind == "str"}
    rows = [MetricRow(**texts, seed=seed, value=1.5) for seed in range(3)]
    write_rows(folder / "rows.jsonl", rows)
    lines = (folder / "rows.jsonl").read_text().splitlines()
    changed = [json.dumps(mutated_json(json.loads(line), rng)) for line in lines[:1]]
    return _written(folder, "rows.jsonl", "\n".join([*changed, *lines[1:], ""]).encode())


@cache
def _table_bytes() -> bytes:
    """Returns a recorded table of schedules, of the smallest operator."""
    space = ScheduleSpace(parse_operator("matmul:m=2,n=2,k=2")).sub_space({"cache": ["none"], "unroll": [0]})
    table = empty_table("small", space, "native", {"processor": "x"}, {"runs": 1})
    with tempfile.TemporaryDirectory() as name:
        write_table(Path(name) / "t.arrow", table)
        return (Path(name) / "t.arrow").read_bytes()


def _table(rng: np.random.Generator, folder: Path) -> Path:
    return _written(folder, "t.arrow", mutated_bytes(_table_bytes(), rng))


@cache
def _packed() -> bytes:
    table = table_of(FILES, [("split/counts.json", "{}"), ("sweep/tile.csv", "trial\n" * 9)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _parquet(rng: np.random.Generator, folder: Path) -> Path:
    return _written(folder, FILES, mutated_bytes(_packed(), rng))


def _read_packed(path: Path) -> None:
    path = path.rename(path.with_name(FILES))
    read_packed_table(path, digest_file(path))


def _log(rng: np.random.Generator, folder: Path) -> Path:
    """The log of a search for a schedule, the value of a line or a stretch of text changed."""
    lines = (CORPUS / "log" / "plain.jsonl").read_text().splitlines()
    if rng.random() < 0.5:
        index = int(rng.integers(len(lines)))
        lines[index] = json.dumps(mutated_json(json.loads(lines[index]), rng))
        return _written(folder, "log.jsonl", "\n".join([*lines, ""]).encode())
    return _written(folder, "log.jsonl", mutated_text("\n".join([*lines, ""]), rng, _JSON_WORDS).encode())


def _records(rng: np.random.Generator, folder: Path) -> Path:
    """Tuning records of AutoTVM, a value changed."""
    line = json.loads((CORPUS / "records" / "plain.json").read_text().splitlines()[0])
    return _written(folder, "records.json", json.dumps(mutated_json(line, rng)).encode() + b"\n")


def _tuning_cache(rng: np.random.Generator, folder: Path) -> Path:
    """A cache of Kernel Tuner or results in T4, a value changed."""
    content = cache_file() if rng.random() < 0.5 else t4_file()
    return _written(folder, "cache.json", json.dumps(mutated_json(content, rng)).encode())


def _tuning_parquet(rng: np.random.Generator, folder: Path) -> Path:
    """A tuning table in Parquet, bytes changed."""
    whole = _written(folder, "whole.json", json.dumps(cache_file()).encode())
    write_parquet(folder / "whole.parquet", read_tuning_table(whole))
    return _written(folder, "k-d.parquet", mutated_bytes((folder / "whole.parquet").read_bytes(), rng))


_JSON_WORDS = ("{", "]", ",", ":", '"', "NaN", "1e999", "9" * 50, "[" * 2000, "\\u", "-", "\0")
READERS: Mapping[str, tuple[Make, Use]] = {
    "program": (_program, _price_program),
    "program bytes": (_program_bytes, _price_program),
    "text": (_text, _price_text),
    "tile tuning": (_tuning, read_tile_tuning),
    "layout tuning": (_layouts, read_layout_tuning),
    "npz": (_npz, _both_npz),
    "shard": (_shard, _all_columns),
    "table": (_table, read_table),
    "packed": (_parquet, _read_packed),
    "chip": (_chip, load_target),
    "params": (_params, _read_params),
    "json": (_json_text, read_json),
    "model": (_model, _load_model),
    "rows": (_rows, read_rows),
    "log": (_log, read_log),
    "records": (_records, lambda path: list(read_records(path))),
    "profile": (_profile, _import_profile),
    "tuning cache": (_tuning_cache, read_tuning_table),
    "tuning table": (_tuning_parquet, read_tuning_table),
}


def warm_up() -> None:
    """Compiles what the programs need, so that the first mutations do not take longer than others."""
    for module in programs():
        _price(module)


def attempt(kind: str, seed: int, number: int, folder: Path) -> str:
    """Returns "ok" or "refused" for one mutation; raises what is a defect.

    Raises:
        Exception: anything but a `CostbenchError`, whose message is one line.
    """
    make, use = READERS[kind]
    rng = stream(seed, "fuzz", kind, number)
    files = corpus_files(kind)
    if files and rng.random() < _FROM_CORPUS:
        source = files[int(rng.integers(len(files)))]
        path = _written(folder, source.name, mutated_bytes(source.read_bytes(), rng))
    else:
        path = make(rng, folder)
    return outcome(use, path)


def corpus_files(kind: str) -> list[Path]:
    """Returns the kept files of a kind, sorted."""
    return sorted((CORPUS / kind.replace(" ", "_")).glob("*"))


def outcome(use: Use, path: Path) -> str:
    """Returns "ok" or "refused", the latter only for a message of one line and fewer than 500 letters."""
    try:
        use(path)
    except CostbenchError as error:
        message = str(error)
        assert message.isprintable(), message
        assert len(message) < 500, message
        return "refused"
    return "ok"
