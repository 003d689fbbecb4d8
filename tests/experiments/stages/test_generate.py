"""What `generate` keeps and what it clears away before it makes anything."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.datasets.fusion_generation import FusionParams
from costbench.datasets.layout_generation import LayoutParams, LayoutTask
from costbench.datasets.storage import Shard
from costbench.datasets.tile_generation import TileParams
from costbench.errors import ChoiceError, DataError, ParamsError
from costbench.experiments.stages.generate import (
    WORK_ITEMS,
    GenerateParams,
    _chosen,
    _Program,
    run,
)
from costbench.experiments.workspace import only_writer
from costbench.hlo.conversion import module_to_bytes
from costbench.params import parse
from costbench.programs.manifest import load_manifest
from tests.compiler.small_layouts import two_convolutions
from tests.experiments.small_programs import LOOP
from tests.sentences import numbers


def test_programs_are_chosen_by_name(repository: Path) -> None:
    folder = repository / "data" / "programs"
    entries = load_manifest(folder)
    assert _chosen((), entries, folder) == entries
    name = entries[3].name
    assert [entry.name for entry in _chosen((name, name), entries, folder)] == [name]
    with pytest.raises(ChoiceError, match="unknown program 'mlp'"):
        _chosen(("mlp",), entries, folder)
    with pytest.raises(DataError, match="no programs"):
        _chosen((), (), folder)


def test_the_users_own_programs_are_always_chosen(repository: Path) -> None:
    folder = repository / "data" / "programs"
    entries = load_manifest(folder)
    own = replace(entries[0], name="user_mine", application="user:mine")
    chosen = _chosen((entries[3].name,), (*entries, own), folder)
    assert [entry.name for entry in chosen] == [entries[3].name, "user_mine"]


def test_a_second_run_says_that_the_first_is_at_work(tmp_path: Path) -> None:
    programs = tmp_path / "data" / "programs"
    programs.mkdir(parents=True)
    (programs / "manifest.json").write_text('{"programs": [], "toolchain": {}}')
    names = {"name": "toy", "params": "params.yaml", "out": "out", "reports": "reports", "root": "."}
    generate = {
        "tasks": ["tile"], "chips": ["tpu_v2"], "programs": [],
        "tile": {"max_tiles_per_kernel": 4}, "fusion": {"max_configs": 1}, "layout": {"max_configs": 2},
    }  # fmt: skip
    params = tmp_path / "params.yaml"
    params.write_text(json.dumps({"run": names, "generate": generate}))
    folder = tmp_path / "out" / "generate"
    with only_writer(folder), pytest.raises(DataError, match=f"{folder}: another run is writing here"):
        run(params)
    with pytest.raises(DataError, match="no programs"):
        run(params)


CORPUS = Path(__file__).parents[2] / "hlo" / "corpus"
CALL = """HloModule m

ENTRY main {
  x = f32[256,256]{1,0} parameter(0)
  a = f32[256,256]{1,0} tanh(x)
  c = f32[256,256]{1,0} custom-call(a), custom_call_target="spotrf"
  ROOT y = f32[256,256]{1,0} add(c, a)
}
"""


def test_own_programs_that_cannot_be_priced_are_left_out_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "data" / "programs" / "user"
    own.mkdir(parents=True)
    (own.parent / "manifest.json").write_text('{"programs": [], "toolchain": {}}')
    (own / "call.txt").write_text(CALL)
    (own / "cut.hlo").write_text(CALL[:100])
    (own / "loop.hlo").write_text(LOOP)
    for name in ("fusion_in_loop", "custom_call_empty_root"):
        shutil.copy(CORPUS / f"{name}.hlo", own)
    params = tmp_path / "params.yaml"
    names = {"name": "toy", "params": "params.yaml", "out": "out", "reports": "reports"}
    layout: dict[str, object] = {"max_configs": 2}
    generate = {
        "tasks": ["tile", "fusion", "layout"], "chips": ["tpu_v2"], "programs": [],
        "tile": {"max_tiles_per_kernel": 4}, "fusion": {"max_configs": 1}, "layout": layout,
    }  # fmt: skip
    params.write_text(json.dumps({"run": {**names, "root": ".", "jobs": 1}, "generate": generate}))
    run(params)
    folders = [tmp_path / "out" / "generate" / task for task in ("fusion", "layout")]
    made = [{path.name.split(".")[0] for path in folder.rglob("*.arrow")} for folder in folders]
    # What is left out leaves nothing, not even a note.
    notes = [{path.stem for path in folder.rglob("*.json")} for folder in folders]
    assert notes == made
    # The fusions of a compiled program are taken apart before any task sees it.
    assert made == [{"user_loop", "user_fusion_in_loop"}] * 2
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any(re.match(r"user_cut: left out: .*cut\.hlo: line \d+: ", text) for text in warned)
    call = [text for text in warned if text.startswith("user_call: left out of the task fusion: ")]
    assert "instruction c: " in call[0]
    assert "'spotrf'" in call[0]
    empty = [text for text in warned if text.startswith("user_custom_call_empty_root: left out: ")]
    assert "instruction done: " in empty[0]
    assert "'sink'" in empty[0]
    (assumed,) = {text for text in warned if text.startswith("user_loop: loop l: ")}
    assert numbers(assumed)[0] == 100
    assert "backend_config=" in assumed


def test_some_programs_have_more_layouts(tmp_path: Path) -> None:
    own = tmp_path / "data" / "programs" / "user"
    own.mkdir(parents=True)
    (own.parent / "manifest.json").write_text('{"programs": [], "toolchain": {}}')
    for name in ("few", "many"):
        (own / f"{name}.pb").write_bytes(module_to_bytes(two_convolutions()))
    names = {"name": "toy", "params": "params.yaml", "out": "out", "reports": "reports"}
    generate = {
        "tasks": ["layout"], "chips": ["tpu_v3"], "programs": [], "tile": {}, "fusion": {},
        "layout": {"max_configs": 8, "strategy": "random"}, "layout_configs": {"user_many": 40},
    }  # fmt: skip
    params = tmp_path / "params.yaml"

    def counts() -> dict[str, int]:
        params.write_text(json.dumps({"run": {**names, "root": ".", "jobs": 1}, "generate": generate}))
        run(params)
        paths = (tmp_path / "out" / "generate" / "layout").rglob("*.arrow")
        metadata = {path.stem: Shard.open(path) for path in paths}
        return {
            name: len(shard["config_runtime_ns"]) + int(str(shard.metadata["num_failed"]))
            for name, shard in metadata.items()
        }

    assert counts() == {"user_few": 8, "user_many": 40}
    (few,) = (tmp_path / "out" / "generate" / "layout").rglob("user_few.arrow")
    before = few.stat().st_mtime_ns
    # Another number for one program leaves the other's shard alone.
    generate["layout_configs"] = {"user_many": 24}
    assert counts() == {"user_few": 8, "user_many": 24}
    assert few.stat().st_mtime_ns == before
    generate["layout_configs"] = {"user_any": 24}
    with pytest.raises(ChoiceError, match="unknown program 'user_any'"):
        counts()


def test_a_limit_of_size_does_not_hold_for_programs_with_a_number(repository: Path, tmp_path: Path) -> None:
    first, second = load_manifest(repository / "data" / "programs")[:2]
    section = GenerateParams(
        tasks=("layout",),
        chips=("tpu_v3",),
        programs=(),
        tile=TileParams(),
        fusion=FusionParams(),
        layout=LayoutParams(max_instructions=1),
        layout_configs={second.name: 5000},
    )
    assert WORK_ITEMS["layout"](_Program(first, b"", (), tmp_path), section) == []
    (task,) = WORK_ITEMS["layout"](_Program(second, b"", (), tmp_path), section)
    assert isinstance(task, LayoutTask)
    assert task.params == LayoutParams(max_instructions=1, max_configs=5000)


def test_one_config_is_no_choice() -> None:
    with pytest.raises(ValueError, match=r"layout_configs\.p: at least 2"):
        GenerateParams(("layout",), ("tpu_v2",), (), TileParams(), FusionParams(), LayoutParams(), {"p": 1})


def test_chips_are_different_ones() -> None:
    with pytest.raises(ValueError, match="chips"):
        GenerateParams(("tile",), ("tpu_v2", "tpu_v2"), (), TileParams(), FusionParams(), LayoutParams())


def test_an_unknown_chip_is_refused_with_the_parameters() -> None:
    section = {"tasks": ["tile"], "chips": ["tpu_v2", "tpu_v9"], "programs": []}
    section |= {"tile": {}, "fusion": {}, "layout": {}}
    with pytest.raises(ParamsError) as error:
        parse(GenerateParams, section, where="params.yaml", field="generate")
    assert error.value.where == "params.yaml"
    assert error.value.field == "generate.chips[1]"
    assert "tpu_v3" in str(error.value.expected)
