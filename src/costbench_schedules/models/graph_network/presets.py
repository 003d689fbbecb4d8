"""Sizes of the networks of schedules, and how long they are trained (docs/schedule_models.md says why)."""

from __future__ import annotations

from costbench.models.net_spec import NetSpec
from costbench_schedules.models.training import TrainingSpec

GNN = NetSpec(
    encoder="graphsage",
    reduction="column-wise",
    hidden=32,
    opcode_embedding=8,
    encoder_layers=2,
    node_final_layers=1,
    decision_features="off",
)
"""GraphSAGE, and mean and maximum over nodes."""
GNN_TRAINING = TrainingSpec(epochs=60, batch=64, learning_rate=5e-3, max_steps=1200)
LSTM = NetSpec(
    encoder="none",
    reduction="lstm",
    hidden=32,
    opcode_embedding=8,
    node_final_layers=1,
    decision_features="off",
)
"""The last state of an LSTM over the nodes in program order."""
LSTM_TRAINING = TrainingSpec(epochs=60, batch=64, learning_rate=1e-2, max_steps=1200)
