from __future__ import annotations

import random  # noqa: TID251 (what Kernel Tuner draws from)

import numpy as np
import pytest

from costbench.errors import ChoiceError
from costbench.rng import stream
from costbench_schedules.search import kernel_tuner
from costbench_schedules.search.kernel_tuner import KERNEL_TUNER, KernelTunerSearch
from costbench_schedules.search.replay import run_search
from tests.schedules.search.test_bayesian import bowl

TABLE = bowl("here", (3, 1, 2, 1))


@pytest.mark.parametrize("name", sorted(KERNEL_TUNER))
def test_strategies_of_kernel_tuner_spend_their_trials_and_repeat(name: str) -> None:
    pytest.importorskip("kernel_tuner", reason="needs the extra kernel-tuner")
    before = random.getstate(), np.random.get_state()[1]  # noqa: NPY002
    orders = [run_search(KERNEL_TUNER[name](), TABLE, 40, stream(3, name)) for _ in range(2)]
    if name != "kernel-tuner-bayes_opt":  # which chooses by how long its own steps take
        np.testing.assert_array_equal(*orders)
    assert 0 < len(set(orders[0].tolist())) == len(orders[0]) <= 40
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_recommended_options_reach_the_strategy() -> None:
    pytest.importorskip("kernel_tuner", reason="needs the extra kernel-tuner")
    plain, other = (
        run_search(KernelTunerSearch("genetic_algorithm", options), TABLE, 60, stream(3, "options"))
        for options in ({}, {"popsize": 4})
    )
    assert plain.tolist() != other.tolist()


def test_without_kernel_tuner_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kernel_tuner.interface", None)
    with pytest.raises(ChoiceError, match="Kernel Tuner is not installed"):
        run_search(KernelTunerSearch("pso"), TABLE, 10, stream(3, "absent"))
    assert kernel_tuner.EXTRA == "kernel-tuner"
