"""`costbench tune` as people meet it, on programs that are not in the corpus."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.search import Progress
from costbench.cli.app import app
from costbench.cli.options import console, print_table
from costbench.cli.tune import _lines, _reporting, _Stop, default_folder, duration, summary
from costbench.errors import ChoiceError, CostbenchError, DataError, HloError
from costbench.experiments.autotuning.session import Gain, Step, TuneOptions, TuningResult
from tests.deadline import HANGS_AFTER_S
from tests.sentences import numbers

QUICK_TILES = ["--budget", "2"]
QUICK = [*QUICK_TILES, "--model-budget", "0.003", "--compile-s", "14.4"]
SHIPPED = Path(__file__).parents[1] / "experiments" / "mixer_step.hlo.txt"
"""HLO text as JAX writes it: two layers of an MLP-Mixer and a step of their training."""
TUNED = TuningResult("step", 3e6, 2e6, 50, 4, 30.5, {}, (), (), ())


def dumped_by_jax(folder: Path) -> Path:
    """Down and up again with a connection past it, as in a U-Net, and a step of its training."""
    jax = pytest.importorskip("jax", reason="JAX is not installed: no program is written with it")
    import jax.numpy as jnp

    def convolved(x: Any, w: Any, stride: int) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)

    def loss(weights: Any, x: Any) -> Any:
        high = jax.nn.relu(convolved(x, weights["in"], 1))
        low = jax.nn.relu(convolved(high, weights["down"], 2))
        up = jnp.repeat(jnp.repeat(low, 2, axis=1), 2, axis=2)
        out = convolved(jnp.concatenate([high, up], axis=-1), weights["out"], 1)
        return jnp.square(out - x).mean()

    def step(weights: Any, x: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, x)
        return value, jax.tree.map(lambda w, slope: w - 0.1 * slope, weights, slopes)

    shapes = {"in": (3, 3, 8, 32), "down": (3, 3, 32, 64), "out": (3, 3, 96, 8)}
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    images = jax.ShapeDtypeStruct((8, 32, 32, 8), jnp.float32)
    path = folder / "unet_step.hlo.pb"
    hlo = jax.jit(step).lower(weights, images).compiler_ir("hlo")
    path.write_bytes(hlo.as_serialized_hlo_module_proto())
    return path


@pytest.fixture(scope="module", params=["written with JAX", "shipped"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "shipped":
        return SHIPPED
    return dumped_by_jax(tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("task", ["tile", "fusion", "layout"])
def test_a_program_of_ones_own(program: Path, tmp_path: Path, task: str) -> None:
    quick = QUICK_TILES if task == "tile" else QUICK
    arguments = ["tune", str(program), "--task", task, "--out", str(tmp_path / "out"), *quick]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "predicted by analytical" in result.output
    assert "s of hardware time" in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"decisions.json", "costs.csv", "search.svg", "search.png", "settings.json", "traces"}
    decisions = json.loads((tmp_path / "out" / "decisions.json").read_text())
    assert decisions["task"] == task
    assert decisions["speedup"] >= 1.0
    assert decisions["chip"] == "tpu_v3"
    assert "nanoseconds" in decisions["units"]["best_ns"]
    assert len((tmp_path / "out" / "costs.csv").read_text().splitlines()) == 1 + decisions["num_measured"]
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    again = CliRunner().invoke(app, [*arguments, "--resume"])
    assert again.exit_code == 0, again.output
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("program", "task"), [("written with JAX", "tile"), ("shipped", "fusion")], indirect=["program"]
)
def test_stopped_and_resumed_it_ends_as_if_it_had_not_been(program: Path, tmp_path: Path, task: str) -> None:
    """Enough to do for seconds; stopped as soon as something was tried."""
    budgets = {"tile": ["--top-k", "20000"], "fusion": ["--model-budget", "0.02", "--compile-s", "14.4"]}
    command = [sys.executable, "-m", "costbench", "tune", str(program), "--task", task, *budgets[task]]
    stopped = [*command, "--out", str(tmp_path / "stopped")]
    with subprocess.Popen(stopped, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            # What is compiled once is announced before.
            next(line for line in running.stderr if " tried, best " in line)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=HANGS_AFTER_S)
        finally:
            running.kill()
    assert running.returncode == 130, errors
    assert "--resume" in errors.splitlines()[-1]
    assert output
    assert json.loads((tmp_path / "stopped" / "decisions.json").read_text())["speedup"] >= 1.0
    for arguments in ([*stopped, "--resume"], [*command, "--out", str(tmp_path / "whole")]):
        assert CliRunner().invoke(app, arguments[3:]).exit_code == 0
    for whole in (path for path in (tmp_path / "whole").rglob("*") if path.is_file()):
        resumed = tmp_path / "stopped" / whole.relative_to(tmp_path / "whole")
        assert resumed.read_bytes() == whole.read_bytes(), whole.name


def test_results_of_other_options_are_not_overwritten(tmp_path: Path) -> None:
    command = ["tune", str(SHIPPED), "--task", "layout", "--out", str(tmp_path), *QUICK]
    assert CliRunner().invoke(app, command).exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    without_model = [part for part in command if part not in ("--model-budget", "0.003")]
    for other in (
        [*without_model, "--model", "none"],
        [*command, "--chip", "tpu_v2"],
        [*command, "--budget", "3"],
    ):
        refused = CliRunner().invoke(app, other)
        assert isinstance(refused.exception, DataError)
        assert refused.exception.where == str(tmp_path / "settings.json")
    assert {path: path.read_bytes() for path in before} == before
    assert CliRunner().invoke(app, command).exit_code == 0


def test_layouts_that_change_are_named_with_both_orders(tmp_path: Path) -> None:
    command = ["tune", str(SHIPPED), "--task", "layout", "--model", "none", "--budget", "10"]
    assert CliRunner().invoke(app, [*command, "--compile-s", "2", "--out", str(tmp_path)]).exit_code == 0
    written = json.loads((tmp_path / "decisions.json").read_text())
    changed = [node for node in written["nodes"] if node["default"] != node["chosen"]]
    assert written["best_ns"] < written["default_ns"]
    assert [change["what"].split()[0] for change in written["changes"]] == [
        node["instruction"] for node in changed
    ]
    assert all(change["before"] != change["after"] for change in written["changes"])


def test_a_folder_of_models_lists_them(tmp_path: Path) -> None:
    for name in ("fusion-random-tpu_v3-main-s0", "fusion-random-tpu_v3-main-s1"):
        (tmp_path / "main-fusion" / name).mkdir(parents=True)
        (tmp_path / "main-fusion" / name / "model.json").write_text("{}", "utf-8")
    command = ["tune", str(SHIPPED), "--task", "fusion", "--model", str(tmp_path)]
    refused = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")]).exception
    assert isinstance(refused, DataError)
    assert refused.field == "--model"
    assert str(refused.expected).count("main-fusion/fusion-random") == 2


def test_times_and_folders() -> None:
    # Below a tenth of a millisecond in microseconds.
    assert [numbers(duration(ns)) for ns in (1_234.5, 99_999.0, 100_000.0)] == [[1.234], [99.999], [0.1]]
    assert [duration(ns)[-2:] for ns in (1_234.5, 100_000.0)] == ["µs", "ms"]
    tile = TuneOptions(Path("a/step.hlo.pb"), "tile", model="out/laptop/train/main-tile/cell-s0")
    assert default_folder(tile, "tpu_v3") == Path("out/tune/step-tile-tpu_v3-main-tile-cell-s0")
    mine = replace(tile, model="models:/costbench-tile-laptop@champion")
    assert default_folder(mine, "chips/mine.yaml").name.startswith("step-tile-mine-")
    assert default_folder(mine, "tpu_v3") != default_folder(tile, "tpu_v3")


def test_ctrl_c_waits_for_the_batch_in_work() -> None:
    """Not for anything else: before the first batch, and when pressed again, it stops at once."""
    told: list[Step] = []
    stop, step, progress = _Stop(), Step("one", "one"), Progress(MeasurementBudget(), 1, 1.0)
    with pytest.raises(KeyboardInterrupt):
        stop.pressed(signal.SIGINT, None)
    report = stop.before(lambda step, _progress: told.append(step))
    report(step, progress)
    stop.pressed(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        report(step, progress)
    with pytest.raises(KeyboardInterrupt):
        stop.pressed(signal.SIGINT, None)
    assert told == [step]


def test_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 6.0, 6.0])
    report, budget = _lines(times.__next__), MeasurementBudget(seconds=60.0, spent_seconds=15.0)
    report(Step("predicted", "predicting"), Progress(budget, 1_200, 2.5e6))
    report(Step("predicted", "predicting"), Progress(budget, 1_201, 2.5e6))
    report(Step("kernel", "kernel 4 of 8", 3, 8, 7e6), Progress(MeasurementBudget(), 9, 1.0))
    first, second = capsys.readouterr().err.splitlines()
    # Percent, decisions, best in ms; the kernel and their number before that.
    assert numbers(first.replace("%", " ")) == [25, 1200, 2.5]
    assert numbers(second.replace("%", " ")) == [4, 8, 38, 9, 7.0]


def test_a_bar_on_a_terminal() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with _reporting(console, SHIPPED) as report:
        report(Step("measured", "measuring"), Progress(MeasurementBudget(seconds=60.0), 3, float("inf")))
    assert "measuring" in screen.getvalue()
    assert "3 tried" in screen.getvalue()


def options(**changes: Any) -> TuneOptions:
    return TuneOptions(SHIPPED, **{"task": "fusion", **changes})


def test_what_came_out_in_words() -> None:
    gain, predicted, measured, files = summary(TUNED, options(model="folder"), Path("out")).splitlines()
    # In percent, before, after, ratio.
    assert gain.startswith("step: ")
    assert numbers(gain.replace("%", " ")) == [50.0, 3.0, 2.0, 1.5]
    assert numbers(predicted) == [50]
    assert "folder" in predicted
    assert numbers(measured) == [4, 30.5]
    for name in ("decisions.json", "costs.csv", "search.png", "search.svg"):
        assert name in files


def test_brackets_in_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """A name of JAX's with its parameters, a folder, and what would close a style that nobody opened."""
    names = ["dot[dims=0]", "step[fold]", "jit(f)/dot[/step]"]
    print_table(["what"], [[name] for name in names], title="u[net]")
    console().print(summary(TUNED, options(), Path("out[fold]")), highlight=False, soft_wrap=True)
    output = capsys.readouterr().out
    assert all(name in output for name in (*names, "u[net]", "out[fold]"))


def test_nothing_found_is_said_with_what_would_help() -> None:
    nothing = TuningResult("step", 3e6, 3e6, 0, 0, 0.0, {}, (Gain("step", 1, 3e6, None, 3e6),), (), ())
    lines = summary(nothing, options(minutes=1.0, model="none"), Path("out")).splitlines()
    assert numbers(lines[0]) == [3.0]
    # Seconds of compiling do not fit in the minutes.
    assert numbers(lines[2])[:2] == [101.5, 1]
    assert "--budget" in lines[2]


def test_stopped_before_measuring_the_best_is_what_the_model_says() -> None:
    stopped = replace(TUNED, best_ns=3e6, num_measured=0, unmeasured=(2.5e6, 2.75e6))
    line = summary(stopped, options(), Path("out")).splitlines()[0]
    assert numbers(line) == [2.5, 2.75]
    line = summary(stopped, options(task="layout"), Path("out")).splitlines()[0]
    assert "layouts" in line
    assert "fusions" not in line


def test_the_command_explains_itself() -> None:
    result = CliRunner().invoke(app, ["tune", "--help"], terminal_width=200)
    assert result.exit_code == 0
    words = (
        "--resume",
        "--budget",
        "--model",
        "Ctrl-C",
        "analytical",
        "runs best",
        "compiler_ir",
        "FILE-TASK",
    )
    assert all(word in result.output for word in words)


@pytest.fixture
def error(tmp_path: Path) -> Callable[..., CostbenchError]:
    def invoked(*arguments: str) -> CostbenchError:
        out = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
        found = CliRunner().invoke(app, ["tune", *arguments, *out]).exception
        assert isinstance(found, CostbenchError)
        return found

    return invoked


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (["--task", "layouts"], ChoiceError, "'layout'? (expected one of fusion, layout, schedule, tile)"),
        (["--budget", "0"], DataError, "--budget: 0.0"),
        (["--budget", "-2"], DataError, "--budget: -2.0"),
        (["--task", "fusion", "--compile-s", "-1"], DataError, "--compile-s: -1.0"),
        (["--chip", "tpu_v9"], CostbenchError, "unknown chip 'tpu_v9'"),
        (
            ["--task", "fusion", "--model", "none", "--model-budget", "2"],
            DataError,
            "--model-budget: has no effect with --model none",
        ),
        (["--model", "none", "--time-limit", "2"], DataError, "--time-limit: has no effect with --model"),
        (["--model", "nowhere"], DataError, "--model: no such folder (expected the folder of a"),
        (["--resume"], DataError, "nothing to resume"),
        (["--out", str(SHIPPED)], DataError, "mixer_step.hlo.txt"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_user_can_mend(
    error: Callable[..., CostbenchError], wrong: list[str], kind: type[CostbenchError], message: str
) -> None:
    found = error(str(SHIPPED), *wrong)
    assert isinstance(found, kind)
    assert message in str(found)


def test_files_that_are_no_program(error: Callable[..., CostbenchError], tmp_path: Path) -> None:
    assert "nowhere.pb: no such file" in str(error(str(tmp_path / "nowhere.pb")))
    for name, content, message in (
        ("half.hlo.txt", SHIPPED.read_text()[:1500], "half.hlo.txt"),
        ("unknown.hlo.txt", SHIPPED.read_text().replace(" dot(", " dots("), "unknown opcode 'dots'"),
        ("words.hlo.txt", "not a program", "text that begins with HloModule"),
        ("empty.pb", "", "truncated or no HLO module"),
    ):
        (tmp_path / name).write_text(content)
        found = error(str(tmp_path / name))
        assert isinstance(found, HloError), name
        assert message in str(found)


def test_other_options_are_no_resumption(error: Callable[..., CostbenchError]) -> None:
    error(str(SHIPPED), "--model", "nowhere")
    assert "settings.json: is of model nowhere, not none" in str(
        error(str(SHIPPED), "--model", "none", "--resume")
    )
