"""Training on few kernels, and from the weights of another training."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from costbench.errors import ParamsError
from costbench.models.checkpoint import load_checkpoint
from costbench.models.spec import NetSpec
from costbench.training.fit import fit
from costbench.training.kernel_source import SubsetSource, draw_kernels
from costbench.training.spec import BatchSpec, OptimizerSpec, TrainSpec
from tests.training.kernel_list import KernelList, small_kernels

TRAIN, VALIDATION = small_kernels(0, num_kernels=12), small_kernels(1, num_kernels=6)
SPEC = TrainSpec(
    net=NetSpec(hidden=8, opcode_embedding=4, encoder_layers=1, node_final_layers=1),
    loss="huber",
    monitor="mape",
    batch=BatchSpec(kernels=4, configs=1, per_epoch=6),
    optimizer=OptimizerSpec(learning_rate=3e-3),
    epochs=2,
    patience=2,
)


def indices(source: object) -> list[int]:
    assert isinstance(source, SubsetSource)
    return source._indices.tolist()


def test_few_kernels_are_even_over_applications_and_among_more() -> None:
    few, more = draw_kernels(TRAIN, 4, seed=0), draw_kernels(TRAIN, 7, seed=0)
    assert set(indices(few)) < set(indices(more))
    assert Counter(few.application(index) for index in range(len(few))) == {"one": 2, "two": 2}
    assert indices(few) == sorted(indices(few))
    assert indices(draw_kernels(TRAIN, 4, seed=1)) != indices(few)
    assert draw_kernels(TRAIN, 0, seed=0) is TRAIN
    assert draw_kernels(TRAIN, 12, seed=0) is TRAIN


def test_a_small_application_gives_all_that_it_has() -> None:
    kernels = KernelList([kernel for kernel in TRAIN if kernel.group == "one"] + [TRAIN[1]])
    drawn = draw_kernels(kernels, 5, seed=0)
    assert Counter(drawn.application(index) for index in range(len(drawn))) == {"one": 4, "two": 1}


def test_training_starts_from_weights_and_scaling_of_another(tmp_path: Path) -> None:
    fit(SPEC, TRAIN, VALIDATION, tmp_path / "before")
    before = load_checkpoint(tmp_path / "before")
    # With steps of no size the weights stay; only the level is that of the new kernels.
    still = replace(SPEC, optimizer=replace(SPEC.optimizer, learning_rate=1e-12), seed=5)
    fit(still, VALIDATION, VALIDATION, tmp_path / "after", pretrained=tmp_path / "before")
    after = load_checkpoint(tmp_path / "after")
    assert after.scaling.to_dict() == before.scaling.to_dict()
    weights, old = after.net.state_dict(), before.net.state_dict()
    for name in old:
        if name != "level":
            assert torch.allclose(weights[name], old[name], atol=1e-7)
    assert weights["level"] != old["level"]
    fit(replace(still, max_kernels=0), VALIDATION, VALIDATION, tmp_path / "nothing")
    assert not torch.allclose(
        load_checkpoint(tmp_path / "nothing").net.state_dict()["opcode_embedding.weight"],
        old["opcode_embedding.weight"],
    )


def test_another_network_is_refused(tmp_path: Path) -> None:
    fit(SPEC, TRAIN, VALIDATION, tmp_path / "before")
    wider = replace(SPEC, net=replace(SPEC.net, hidden=16))
    with pytest.raises(ParamsError, match="another network than that of `pretrained`"):
        fit(wider, TRAIN, VALIDATION, tmp_path / "after", pretrained=tmp_path / "before")
