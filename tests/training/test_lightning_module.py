from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import ParamsError
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.params import parse
from costbench.training.lightning_module import CostModelModule
from costbench.training.losses import LOSSES
from costbench.training.spec import OptimizerSpec, TrainSpec


def test_exponential_rate_falls_once_an_epoch() -> None:
    spec = OptimizerSpec(learning_rate=1.0, schedule="exponential", decay=0.5)
    rates = [spec.rate(step, steps_per_epoch=10, epochs=3) for step in (0, 9, 10, 19, 20)]
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_cosine_rate_falls_over_the_whole_training() -> None:
    spec = OptimizerSpec(learning_rate=2.0, schedule="cosine", decay=0.1)
    # Half way, the cosine is 0: 0.1 + 0.9 / 2. A quarter: (1 + cos(pi / 4)) / 2.
    assert spec.rate(0, 10, 4) == pytest.approx(2.0)
    assert spec.rate(20, 10, 4) == pytest.approx(2.0 * 0.55)
    assert spec.rate(10, 10, 4) == pytest.approx(2.0 * (0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2))
    assert spec.rate(40, 10, 4) == pytest.approx(0.2)
    assert spec.rate(99, 10, 4) == pytest.approx(0.2)


def test_no_decay_is_a_constant_rate() -> None:
    spec = OptimizerSpec(learning_rate=0.3, schedule="exponential", decay=1.0)
    assert {spec.rate(step, 10, 100) for step in range(0, 1000, 37)} == {0.3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0.0),
        ("decay", 0.0),
        ("decay", 1.5),
        ("gradient_clip_norm", 0.0),
        ("averaging", 1.0),
        ("averaging", -0.1),
        ("weight_decay", -0.1),
        ("schedule", "warm"),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ParamsError, match=field):
        parse(OptimizerSpec, {field: value}, where="params.yaml")


def test_an_average_forgets_its_start_before_it_becomes_slow() -> None:
    spec = OptimizerSpec(averaging=0.9)
    # (1 + t) / (10 + t): 1/10, 2/11, ..., which passes 0.9 at t = 80.
    assert [spec.kept_of_average(step) for step in (0, 1, 80, 1000)] == [0.1, 2 / 11, 0.9, 0.9]


def test_the_average_of_weights_is_kept_and_the_weights_are_trained() -> None:
    net = nn.Linear(1, 1, bias=False)
    spec = TrainSpec(optimizer=OptimizerSpec(averaging=0.5))
    module = CostModelModule(net, LOSSES["mse"], spec)
    trained = [weight for group in module.configure_optimizers().param_groups for weight in group["params"]]
    assert [id(weight) for weight in trained] == [id(net.weight)]
    assert isinstance(module.validated_net, nn.Linear)
    before, after = net.weight.item(), 3.0
    net.weight.data.fill_(after)
    module.update_average(0)
    # The first step keeps a tenth, the second 2/11.
    assert module.validated_net.weight.item() == pytest.approx(0.1 * before + 0.9 * after)
    module.update_average(1)
    assert module.validated_net.weight.item() == pytest.approx(
        2 / 11 * (0.1 * before + 0.9 * after) + 9 / 11 * after
    )
    assert net.weight.item() == after


def test_statistics_of_a_normalisation_are_those_of_the_trained_network() -> None:
    net = nn.Sequential(nn.BatchNorm1d(1, momentum=1.0), nn.Linear(1, 1))
    module = CostModelModule(net, LOSSES["mse"], TrainSpec(optimizer=OptimizerSpec(averaging=0.5)))
    net(torch.tensor([[1.0], [3.0]]))
    module.update_average(0)
    # Mean 2 and variance 2 of the batch; 0 and 1 are those of a new network.
    kept = {name: value.item() for name, value in module.validated_net.named_buffers()}
    assert (kept["0.running_mean"], kept["0.running_var"]) == pytest.approx((2.0, 2.0))


def test_without_averaging_the_weights_themselves_are_kept() -> None:
    net = nn.Linear(1, 1)
    module = CostModelModule(net, LOSSES["mse"], TrainSpec())
    assert module.validated_net is net


def test_weights_decay_beside_their_gradient() -> None:
    net = nn.Linear(1, 1, bias=False)
    net.weight.data.fill_(2.0)
    spec = TrainSpec(optimizer=OptimizerSpec(learning_rate=0.1, weight_decay=0.5))
    optimizer = CostModelModule(net, LOSSES["mse"], spec).configure_optimizers()
    net.weight.grad = torch.zeros(1, 1)
    optimizer.step()
    # 2 (1 - 0.1 * 0.5); the gradient is zero.
    assert net.weight.item() == pytest.approx(1.9)


def test_batches_go_where_the_network_is() -> None:
    samples = [kernel_samples(0, 3, 4)]
    batch = Collator(FeatureScaling.fit(samples), 20)(samples)
    module = CostModelModule(nn.Linear(1, 1), LOSSES["mse"], TrainSpec())
    assert module.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
    assert module.transfer_batch_to_device(batch, torch.device("meta"), 0).mask.device.type == "meta"
