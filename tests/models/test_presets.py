from __future__ import annotations

import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.batch.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.presets import PRESETS


def test_lstm_baseline_has_no_graph_and_no_layers_before_the_lstm() -> None:
    spec = PRESETS["lpm2020-lstm"]
    assert (spec.encoder, spec.reduction, spec.node_final_layers) == ("none", "lstm", 0)
    assert (spec.decision_features, spec.static_features) == ("node", "off")


def test_every_preset_is_a_network() -> None:
    samples = [kernel_samples(seed, nodes, 4) for seed, nodes in enumerate((2, 5))]
    scaling = FeatureScaling.fit(samples)
    for spec in PRESETS.values():
        costs = LearnedCostNet(spec, scaling.sizes)(Collator(scaling, spec.max_neighbors)(samples))
        assert costs.shape == (2, 4)
        assert torch.isfinite(costs).all()
