"""Bad input to the stages: one clear line, exit code 1, no traceback."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from costbench.experiments.stages import evaluate, generate, split
from costbench.experiments.stages.entry import Stage, guarded
from tests.pipelines.workplace import TINY, Changes, call, call_stage, make_workplace, write_profile

pytestmark = pytest.mark.pipeline
STAGES: dict[str, Stage] = {"generate": generate.run, "split": split.run, "evaluate": evaluate.run}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workplace in which nothing has run."""
    return make_workplace(tmp_path_factory.mktemp("bare") / "workplace")


def _from_script(folder: Path, stage: str, params: Path) -> str:
    done = call_stage(folder, stage, params)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{stage}: error: ")
    return line


def _in_process(folder: Path, stage: str, params: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert guarded(lambda: STAGES[stage](folder / params), stage) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{stage}: error: ")
    return line


def test_parameters_from_the_script(bare: Path) -> None:
    changes = {"generate": {"chip": "tpu_v2"}}
    line = _from_script(bare, "generate", write_profile(bare, "bad", {**TINY, **changes}))
    assert "generate.chip: unknown key, did you mean 'chips'?" in line


@pytest.mark.parametrize(
    ("stage", "changes", "message"),
    [
        ("generate", {"generate": {"chips": "tpu_v2"}}, "generate.chips: 'tpu_v2' (str) is not accepted"),
        ("generate", {"run": {"programs": "data/nowhere"}}, "data/nowhere: no such programs folder"),
        ("generate", {"generate": {"programs": ["mlp"]}}, "unknown program 'mlp'"),
        ("generate", {"generate": {"chips": ["tpu_v9"]}}, "unknown chip 'tpu_v9'"),
        ("split", {}, "expected the finished stage 'generate'"),
        ("evaluate", {"evaluate": {"models": ["lerned"]}}, "did you mean 'learned'"),
        ("evaluate", {"evaluate": {"top_k": [0]}}, "must be at least 1"),
    ],
)
def test_parameters(
    bare: Path, stage: str, changes: Changes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    params = write_profile(bare, "bad", {**TINY, **changes})
    assert message in _in_process(bare, stage, params, capsys)


def _chip(folder: Path, field: str, value: str) -> Path:
    """A TPU v2 with one line replaced, or left out."""
    lines = (folder / "src" / "costbench" / "chips" / "tpu_v2.yaml").read_text().splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith(f"  {field}:")]
    lines[place : place + 1] = [f"  {field}: {value}"] if value else []
    chip = folder / "chip.yaml"
    chip.write_text("\n".join(lines).replace("name: tpu_v2", "name: own"))
    return chip


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("clock_mhz", "", "architecture.clock_mhz: missing"),
        ("hbm_gb_per_s", "-350", "architecture.hbm_gb_per_s: -350"),
        ("launch_ns", ".nan", "timing.launch_ns"),
        # Far less than a native tile of each operand.
        (
            "scratchpad_bytes",
            "1000",
            "the smallest takes 32768 bytes (expected at most 1000 bytes of scratchpad)",
        ),
    ],
)
def test_chips_of_your_own(
    bare: Path, field: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chip = _chip(bare, field, value)
    generate_one = {**TINY["generate"], "chips": [str(chip)], "programs": ["rnn_char_b64_infer_f32"]}
    line = _in_process(
        bare, "generate", write_profile(bare, "bad", {**TINY, "generate": generate_one}), capsys
    )
    assert message in line
    if field == "scratchpad_bytes":
        assert line.startswith("generate: error: rnn_char_b64_infer_f32: tile size: no tile of kernel ")
    else:
        assert str(chip) in line


def test_chips_of_the_same_name(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = bare / "twin.yaml"
    chip.write_bytes((bare / "src" / "costbench" / "chips" / "tpu_v2.yaml").read_bytes())
    chips = {**TINY["generate"], "chips": ["tpu_v2", str(chip)]}
    params = write_profile(bare, "bad", {**TINY, "generate": chips})
    assert "chips of the same name: tpu_v2, tpu_v2" in _in_process(bare, "generate", params, capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (generate.BackendFlags(backend="ray"), "backend is 'ray', must be loky or dask"),
        (generate.BackendFlags(backend="dask"), "scheduler is empty"),
        (generate.BackendFlags(jobs=0), "jobs is 0, must be at least 1"),
    ],
)
def test_backends(
    bare: Path, flags: generate.BackendFlags, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    params = bare / write_profile(bare, "bad", TINY)
    assert guarded(lambda: generate.run(params, flags), "generate") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("generate: error: --backend, --scheduler, --jobs or COSTBENCH_BACKEND")
    assert message in line


IMPATIENT = """
import runpy
from costbench.execution import cluster
cluster._CONNECT_S = 2  # in place of 20, in which nothing else would happen
runpy.run_path("pipelines/generate.py", run_name="__main__")
"""


def test_a_scheduler_that_does_not_answer(bare: Path) -> None:
    """A port that nobody listens on."""
    params = write_profile(bare, "bad", TINY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    command = [sys.executable, "-c", IMPATIENT, "--params", params]
    done = call(bare, command, COSTBENCH_SCHEDULER=address)
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"generate: error: {address}: no Dask scheduler answers")


def test_a_missing_parameter_file(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "none.yaml: no such file" in _in_process(bare, "split", Path("none.yaml"), capsys)


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _text(data: bytes) -> bytes:
    return b"HloModule this is text, not a proto"


def _nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("name", "damage"), [("truncated.hlo.pb.zst", _half), ("text.hlo.pb", _text), ("empty.pb", _nothing)]
)
def test_programs_that_are_none(
    bare: Path, name: str, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    user = bare / "data" / "programs" / "user"
    user.mkdir(exist_ok=True)
    source = bare / "data" / "programs" / "rnn_char_b64_infer_f32.hlo.pb.zst"
    (user / name).write_bytes(damage(source.read_bytes()))
    program = f"user_{name.split('.')[0]}"
    params = write_profile(bare, "bad", {**TINY, "generate": {"programs": [program]}})
    try:
        line = _in_process(bare, "generate", params, capsys)
    finally:
        (user / name).unlink()
    assert name in line or program in line


def _overwrite(path: Path, data: bytes) -> None:
    path.unlink()  # DVC may have made it a link to its cache, which must stay as it is
    path.write_bytes(data)


def _cut(data: bytes) -> bytes:
    return data[:-64]


def _flip(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 0xFF]) + data[-8:]


@pytest.mark.parametrize("damage", [_cut, _flip])
def test_a_damaged_shard(
    workplace: Path, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    shard = workplace / "out" / "smoke" / "generate" / "tile" / "tpu_v2" / "vgg19_b64_infer_f32.arrow"
    _overwrite(shard, damage(shard.read_bytes()))
    assert shard.name in _in_process(workplace, "split", Path("profiles/smoke/params.yaml"), capsys)


def test_damaged_weights(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = (
        workplace / "out" / "smoke" / "train" / "main-tile" / "tile-random-tpu_v2-main-s0" / "weights.pt"
    )
    _overwrite(weights, weights.read_bytes()[:-10])
    # What was evaluated with the weights as they were needs them no more.
    shutil.rmtree(workplace / "out" / "smoke" / "evaluate")
    line = _in_process(workplace, "evaluate", Path("profiles/smoke/params.yaml"), capsys)
    assert "weights.pt" in line
