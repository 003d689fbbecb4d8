from __future__ import annotations

import numpy as np

from benchmarks.machine_effects import EFFECTS, in_memory_order, without
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.lowering.packed import unpacked
from costbench.target import load_target
from tests.compiler import small_kernels as small
from tests.hardware.test_calibration import recorded

V3 = load_target("tpu_v3")


def test_runs_with_an_effect_are_fitted_worse_without_it() -> None:
    runs = recorded(V3)
    complete = without("nothing left out", runs, V3, EFFECTS["nothing left out"])
    serial = without("overlap", runs, V3, EFFECTS["overlap of copies and compute"])
    assert complete.mape < 2.0
    assert serial.mape > complete.mape + 1.0
    assert serial.cost > 2 * complete.cost


def test_every_effect_names_parameters_of_the_machine() -> None:
    for pinned in EFFECTS.values():
        assert set(pinned) <= set(vars(V3.timing))


def test_the_other_order_changes_contractions_only_by_order() -> None:
    runs = recorded(V3)
    other = in_memory_order(runs)
    dot = next(r for r in other if r.kernel.name == "dot")
    assert unpacked(dot.nest.words).order.tolist() == [0, 1, 2]
    assert unpacked(loop_nest(small.dot()).words).order.tolist() == [1, 0, 2]
    assert all(np.array_equal(a.extents, b.extents) for a, b in zip(runs, other, strict=True))
    # The originals keep their order.
    assert unpacked(next(r for r in runs if r.kernel.name == "dot").nest.words).order.tolist() == [1, 0, 2]
