"""Networks of the papers as values of `NetSpec`; widths keep the defaults."""

from __future__ import annotations

from collections.abc import Mapping

from costbench.models.net_spec import NetSpec

PRESETS: Mapping[str, NetSpec] = {
    "lpm2020-lstm": NetSpec(
        encoder="none",
        reduction="lstm",
        node_final_layers=0,
        decision_features="node",
        static_features="off",
    ),
}
"""Name to network.

- `lpm2020-lstm`: the LSTM baseline of lpm2020, section 6.1: an LSTM over topologically sorted nodes, whose
  embeddings are those that the paper's graph network starts from: one feed-forward layer over the opcode
  embedding and the features, tile size among them. That paper has neither node final layers nor static
  performance features. Train it with loss `mse` for absolute runtimes.
"""
