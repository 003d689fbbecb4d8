from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import AnyArray
from costbench.artifacts import digest_files
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import compile_program, unique_kernels
from costbench.compiler.tile_space import tile_space
from costbench.datasets import fusion_generation
from costbench.datasets.fusion_generation import (
    FusionParams,
    FusionTask,
    concatenate_columns,
    finished_parts,
    progress_of,
)
from costbench.datasets.generation import summaries_of
from costbench.datasets.measured_kernels import compiled_program_path, fusion_part_path
from costbench.datasets.record_types import FUSION
from costbench.datasets.records import check_columns
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.hardware.device import Device
from costbench.hlo.reader import module_from_bytes, read_module
from costbench.target import load_target

NAME = "nmt_b32_infer_f32"
PROGRAM = (Path(__file__).resolve().parents[2] / "data" / "programs" / f"{NAME}.hlo.pb.zst").read_bytes()
CHIPS = ("tpu_v2", "tpu_v3")


def task(folder: Path, **params: float) -> FusionTask:
    return FusionTask(
        NAME,
        "NMT Model",
        PROGRAM,
        tuple(load_target(chip) for chip in CHIPS),
        FusionParams(**{"max_configs": 6, **params}),  # type: ignore[arg-type]
        folder,
    )


def parts(folder: Path, chip: str = "tpu_v3") -> list[Shard]:
    return [Shard.open(path) for path in sorted((folder / "fusion" / chip).glob("*.arrow"))]


def digest(folder: Path) -> str:
    return digest_files(sorted(folder.rglob("*.arrow")), folder)


def rows(shard: Shard, folder: Path) -> list[Kernel]:
    module = read_module(compiled_program_path(folder, NAME))
    columns = [
        (shard[f"kernel_{part}_offsets"], shard[f"kernel_{part}"])
        for part in ("instructions", "inputs", "outputs")
    ]
    return [
        Kernel(
            module,
            int(shard["kernel_computation"][k]),
            *(tuple(values[offsets[k] : offsets[k + 1]].tolist()) for offsets, values in columns),
        )
        for k in range(shard.num_kernels)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fusion")
    task(folder).make()
    return folder


def test_every_kernel_is_there_once_and_the_default_ones_with_their_runs(made: Path) -> None:
    (shard,) = parts(made)
    names = [bytes(row).hex() for row in shard["kernel_fingerprint"]]
    assert len(set(names)) == len(names) > 100
    module = module_from_bytes(PROGRAM, where=NAME)
    expected = {u.fingerprint: u.runs_per_program for u in unique_kernels(compile_program(module, NAME))}
    runs_by_name = {
        name: int(runs) for name, runs in zip(names, shard["kernel_default_runs"], strict=True) if runs
    }
    assert runs_by_name == expected


def test_rows_name_kernels_that_have_their_fingerprint_tile_and_runtime(made: Path) -> None:
    for chip in CHIPS:
        (shard,) = parts(made, chip)
        device = Device(load_target(chip), 0)
        for k, kernel in list(enumerate(rows(shard, made)))[::11]:
            assert kernel.fingerprint == bytes(shard["kernel_fingerprint"][k]).hex()
            space = tile_space(kernel, device.target.architecture)
            assert space.size == shard["kernel_space_size"][k]
            tile = shard["kernel_tile"][k : k + 1]
            assert space.legal(tile).all()
            assert device.measure(kernel, space.decode(tile)).runtime_ns == shard["kernel_runtime_ns"][k]


def test_the_tile_is_what_the_compiler_would_choose(made: Path) -> None:
    (shard,) = parts(made)
    architecture = load_target("tpu_v3").architecture
    choose = AnalyticalModel(architecture).choose
    for k, kernel in list(enumerate(rows(shard, made)))[5::13]:
        space = tile_space(kernel, architecture)
        assert space.number(choose(space)) == shard["kernel_tile"][k]


def test_chips_share_kernels_and_differ_in_runtimes(made: Path) -> None:
    shards = [parts(made, chip)[0] for chip in CHIPS]
    ran = [
        dict(zip(map(bytes, s["kernel_fingerprint"]), s["kernel_runtime_ns"].tolist(), strict=True))
        for s in shards
    ]
    dropped = [{bytes(row) for row in s["dropped_fingerprint"]} for s in shards]
    assert ran[0].keys() | dropped[0] == ran[1].keys() | dropped[1]
    assert [len(d) for d in dropped] == [
        s.metadata["num_failed"] + s.metadata["num_too_large"] for s in shards
    ]
    common = sorted(ran[0].keys() & ran[1].keys())
    v2, v3 = (np.array([one[name] for name in common]) for one in ran)
    assert (v2 != v3).mean() > 0.9
    assert v3.sum() < v2.sum()


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusion_generation, "KERNELS_PER_PART", 60)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    task(whole, max_configs=12).make()
    assert len(parts(whole)) >= 3
    write = fusion_generation.write_shard
    written: list[Path] = []

    def failing(path: Path, *rest: object) -> None:
        if len(written) == 3:  # the second part of the second chip is missing
            raise DataError("no space left", where=path)
        written.append(path)
        write(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fusion_generation, "write_shard", failing)
    with pytest.raises(DataError, match="no space left"):
        task(broken, max_configs=12).make()
    assert summaries_of(task(broken, max_configs=12)) is None
    monkeypatch.setattr(fusion_generation, "write_shard", write)
    task(broken, max_configs=12).make()
    assert summaries_of(task(broken, max_configs=12)) is not None
    assert digest(broken) == digest(whole)


def test_parts_add_up_to_the_whole(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_generation, "KERNELS_PER_PART", 60)
    task(tmp_path).make()
    pieces = parts(tmp_path)
    (whole,) = parts(made)
    assert len(pieces) > 1
    assert [bool(piece.metadata["last"]) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    for key in ("kernel_fingerprint", "kernel_runtime_ns", "kernel_tile", "dropped_fingerprint"):
        assert (np.concatenate([piece[key] for piece in pieces]) == whole[key]).all()
    summaries = summaries_of(task(tmp_path)) or ()
    assert [s.chip for s in summaries] == [chip for chip in CHIPS for _ in pieces]
    assert sum(s.num_kernels for s in summaries if s.chip == "tpu_v3") == whole.num_kernels


def test_finished_shards_are_kept_and_others_made_again(made: Path) -> None:
    assert summaries_of(task(made)) is not None
    assert set(task(made).paths) == set(made.rglob("*.arrow"))
    assert summaries_of(task(made, seed=1)) is None
    assert summaries_of(task(made, max_configs=7)) is None
    first = fusion_part_path(made, "tpu_v2", NAME, 0)
    assert task(made.parent / "elsewhere").paths[0].name == first.name


def test_limits_on_kernels_and_time_end_the_search(tmp_path: Path) -> None:
    task(tmp_path / "few", max_configs=10**6, max_kernels_per_program=80).make()
    (few,) = parts(tmp_path / "few")
    assert 80 <= few.num_kernels + len(few["dropped_fingerprint"]) < 800
    assert few.metadata["num_configs"] < 10
    task(tmp_path / "short", max_configs=10**6, max_seconds_per_program=0.2).make()
    (short,) = parts(tmp_path / "short")
    assert 1 <= short.metadata["num_configs"] < 10**5
    assert short.metadata["last"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_configs", 0),
        ("max_kernels_per_program", -1),
        ("max_seconds_per_program", -1.0),
        ("max_instructions", -1),
    ],
)
def test_impossible_limits_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(FusionParams(), **{field: value})


def batch(*lengths: int, first: int = 0) -> dict[str, AnyArray]:
    """Kernels with so many instructions each; the number of a kernel is its fingerprint's first byte."""
    k = len(lengths)
    digests = np.zeros((k, 16), np.uint8)
    digests[:, 0] = np.arange(first, first + k)
    columns: dict[str, AnyArray] = {
        "kernel_computation": np.zeros(k, np.int32),
        "kernel_fingerprint": digests,
    }
    for part, sizes in (("instructions", lengths), ("inputs", [1] * k), ("outputs", [1] * k)):
        columns[f"kernel_{part}_offsets"] = np.cumsum([0, *sizes]).astype(np.int64)
        columns[f"kernel_{part}"] = np.arange(sum(sizes), dtype=np.int32) + first
    for key in ("default_runs", "space_size", "tile", "runtime_ns"):
        columns[f"kernel_{key}"] = np.arange(first, first + k, dtype=np.int64) + 1
    columns["dropped_fingerprint"] = np.full((1 if k else 0, 16), 200 + first, np.uint8)
    return columns


def metadata(part: int, num_configs: int, *, last: bool = False, key: str = "k") -> dict[str, object]:
    return {"key": key, "part": part, "last": last, "num_configs": num_configs}


def test_batches_are_laid_end_to_end() -> None:
    columns = concatenate_columns([batch(2, 3), batch(), batch(1, first=2)])
    check_columns(FUSION, columns, Path("x.arrow"))
    assert columns["kernel_instructions_offsets"].tolist() == [0, 2, 5, 6]
    assert columns["kernel_instructions"].tolist() == [0, 1, 2, 3, 4, 2]
    assert columns["kernel_runtime_ns"].tolist() == [1, 2, 3]
    assert columns["kernel_fingerprint"][:, 0].tolist() == [0, 1, 2]
    assert columns["dropped_fingerprint"][:, 0].tolist() == [200, 202]


def test_no_batch_is_a_part_without_kernels(tmp_path: Path) -> None:
    write_shard(tmp_path / "x.arrow", concatenate_columns([]), metadata(0, 5, last=True), FUSION)
    shard = Shard.open(tmp_path / "x.arrow")
    assert (shard.num_kernels, shard.num_configs) == (0, 0)


def write(folder: Path, chip: str, part: int, **more: object) -> None:
    content = {**metadata(part, 10 * (part + 1)), **more}
    path = fusion_part_path(folder, chip, "p", part)
    write_shard(path, concatenate_columns([batch(1, 2, first=2 * part)]), content, FUSION)


def test_progress_reaches_as_far_as_the_chip_that_lags_behind(tmp_path: Path) -> None:
    for chip, parts in zip(CHIPS, (3, 2), strict=True):
        for part in range(parts):
            write(tmp_path, chip, part, last=part == 2)
    progress = progress_of(tmp_path, dict.fromkeys(CHIPS, "k"), "p")
    assert (progress.parts, progress.num_configs, progress.complete) == (2, 20, False)
    assert {digest[0] for digest in progress.fingerprints} == {0, 1, 2, 3, 200, 202}
    write(tmp_path, CHIPS[1], 2, last=True)
    assert progress_of(tmp_path, dict.fromkeys(CHIPS, "k"), "p").complete


def test_what_other_inputs_made_does_not_count_nor_what_comes_after_it(tmp_path: Path) -> None:
    for part in range(3):
        write(tmp_path, CHIPS[0], part)
    write(tmp_path, CHIPS[0], 1, key="other")
    assert len(finished_parts(tmp_path, CHIPS[0], "p", "k")) == 1
    assert finished_parts(tmp_path, CHIPS[0], "q", "k") == []
    assert progress_of(tmp_path, {CHIPS[0]: "k"}, "q").num_configs == 0


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_part_ends_what_is_there(tmp_path: Path, damage: str) -> None:
    for part in range(3):
        write(tmp_path, CHIPS[0], part)
    path = fusion_part_path(tmp_path, CHIPS[0], "p", 1)
    path.write_bytes(path.read_bytes()[:-8]) if damage == "cut" else path.unlink()
    assert len(finished_parts(tmp_path, CHIPS[0], "p", "k")) == 1
