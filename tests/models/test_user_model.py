"""Cost models of a user's own are asked like ours, and refused with the place where they fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.program import PreparedProgram
from costbench.compiler.tile_space import nest_tile_space
from costbench.errors import DataError, UnsupportedKernelError
from costbench.models.cost_model import CostModel
from costbench.models.user_model import UserModel, load_user_model
from costbench.target import load_target
from tests.experiments.small_programs import small_step

ARCHITECTURE = load_target("tpu_v3").architecture
HEAD = "import numpy as np\nfrom costbench.errors import UnsupportedKernelError\n\n"


def written(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(HEAD + text)
    return f"{name}:Model"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(model: UserModel) -> np.ndarray:
    program = PreparedProgram(small_step(), "small")
    unique = program.unique_kernels[0]
    space = nest_tile_space(program.lowering.loop_nest(unique.kernel), ARCHITECTURE)
    tiles = space.decode(space.legal_ids()[:3])
    return model.predict(unique.kernel, tiles)


def test_the_example_prefers_large_tiles() -> None:
    model = load_user_model("examples.my_cost_model:LargestTile", ARCHITECTURE)
    assert isinstance(model, CostModel)
    assert model.tasks == ("tile",)
    costs = asked(model)
    assert costs.dtype == np.float64
    assert len(costs) == 3
    assert (costs < 0.0).all()
    with pytest.raises(DataError, match=r"LargestTile: is a model for tile \(expected a model for fusion"):
        model.for_task("fusion")


def test_a_class_may_ask_for_the_chip_and_name_its_tasks(place: Path) -> None:
    name = written(
        place,
        "given_chip",
        "class Model:\n    tasks = ('tile', 'fusion')\n\n    def __init__(self, architecture):\n"
        "        self.size = architecture.scratchpad_bytes\n\n"
        "    def predict(self, kernel, decisions):\n        return [self.size] * len(decisions)\n",
    )
    model = load_user_model(name, ARCHITECTURE)
    assert model.for_task("fusion") is model
    assert asked(model).tolist() == [float(ARCHITECTURE.scratchpad_bytes)] * 3


PREDICT = "class Model:\n    def predict(self, kernel, decisions):\n        "


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("given_raises", "return 1 / 0", r"given_raises\.py, line 6, in predict: ZeroDivisionError"),
        (
            "given_shape",
            "return np.zeros(1)",
            r"predict of kernel \S+: returned an array of shape \(1,\) .expect",
        ),
        (
            "given_nan",
            "return np.full(len(decisions), np.nan)",
            r"returned nan, nan, nan \(expected 3 finite",
        ),
        ("given_none", "return None", "returned nothing"),
        ("given_text", "return ['fast'] * len(decisions)", r"returned a list \(expected 3 finite numbers"),
    ],
)
def test_answers_that_are_no_costs(place: Path, name: str, body: str, message: str) -> None:
    model = load_user_model(written(place, name, PREDICT + body + "\n"), ARCHITECTURE)
    with pytest.raises(DataError, match=message) as caught:
        asked(model)
    assert str(caught.value).startswith(f"{name}:Model: ")
    assert "\n" not in str(caught.value)


def test_a_model_may_refuse_a_kernel(place: Path) -> None:
    body = "raise UnsupportedKernelError('too strange')\n"
    model = load_user_model(written(place, "given_refuses", PREDICT + body), ARCHITECTURE)
    with pytest.raises(UnsupportedKernelError, match="too strange"):
        asked(model)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("given_blank", "class Model:\n    pass\n", "has no method predict"),
        (
            "given_tasks",
            "class Model:\n    tasks = 'tile'\n    def predict(self, k, d): ...\n",
            "tasks: 'tile'",
        ),
        ("given_init", "class Model:\n    def __init__(self, size): ...\n", "TypeError: .*'size'"),
    ],
)
def test_what_is_no_model(place: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_user_model(written(place, name, text), ARCHITECTURE)


def test_runtimes_are_above_zero(place: Path) -> None:
    body = "return -1.0 * np.ones(len(decisions))\n"
    model = load_user_model(written(place, "given_negative", PREDICT + body), ARCHITECTURE)
    program = PreparedProgram(small_step(), "small")
    unique = program.unique_kernels[0]
    space = nest_tile_space(program.lowering.loop_nest(unique.kernel), ARCHITECTURE)
    with pytest.raises(DataError, match=r"returned -1 \(expected nanoseconds, above 0"):
        model.predict_ns(unique.kernel, space.decode(space.legal_ids()[:1]))
