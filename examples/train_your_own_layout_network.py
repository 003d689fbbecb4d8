"""Train a layout network of your own on one program and print how well it ranks configs that it has not seen.

    python examples/train_your_own_layout_network.py out/tpugraphs/shards/layout-xla-random/train/GRAPH.arrow

The file is a layout graph: `costbench import-tpugraphs` converts those of TpuGraphs, the stage `features`
writes those of simulated programs. Everything between the two rulers is plain PyTorch Geometric: exchange it
for what you want to try.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from costbench.datasets.layout_graphs import open_layout_graph
from costbench.errors import DataError
from costbench.features.pyg_dataset import NUM_OPCODES, LayoutDataset, layout_data
from costbench.metrics.ranking import kendall_tau
from costbench.training.layout.source import hold_out_configs
from costbench.training.spec import HoldOutSpec


# ------------------------------------------------------------------------------------------------------
class Network(nn.Module):
    """Scores of configs from the mean state of the configurable nodes; lower is faster."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.opcode = nn.Embedding(NUM_OPCODES, hidden)
        self.node = nn.Linear(140, hidden)
        self.layout = nn.Linear(18, hidden)
        self.convs = nn.ModuleList(SAGEConv(hidden, hidden) for _ in range(2))
        self.score = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, data: Data) -> Tensor:
        configs, nodes = len(data.config_features), data.num_nodes
        own = self.opcode(data.opcode) + self.node(data.x.log1p() / 10.0)
        # A copy of the graph for every config; layouts enter at the configurable nodes.
        states = own.repeat(configs, 1).view(configs, nodes, -1)
        states = states.index_add(1, data.configurable_index, self.layout(data.config_features))
        states = states.relu().flatten(0, 1)
        copies = torch.arange(configs).repeat_interleave(data.num_edges) * nodes
        edges = data.edge_index.repeat(1, configs) + copies
        for conv in self.convs:
            states = states + conv(states, torch.cat([edges, edges.flip(0)], dim=1)).relu()
        states = states.view(configs, nodes, -1)[:, data.configurable_index]
        return self.score(states.mean(dim=1)).squeeze(1)


def loss(scores: Tensor, runtime_ns: Tensor) -> Tensor:
    """Returns the pairwise hinge loss: a slower config should score higher by 1."""
    slower = runtime_ns[:, None] > runtime_ns[None]
    return torch.relu(1.0 - (scores[:, None] - scores[None]))[slower].mean()


def train(network: Network, graphs: LayoutDataset, steps: int) -> None:
    """Runs Adam; every step draws other configs."""
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for step in range(steps):
        data = graphs[step % len(graphs)]
        optimizer.zero_grad()
        loss(network(data), data.runtime_ns).backward()
        optimizer.step()


# ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Trains and prints one line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("file", type=Path, help="a layout graph (.arrow)")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    try:
        graph = open_layout_graph(args.file)
    except DataError as error:  # such as an .npz file, which is to be converted first
        parser.error(str(error))
    # The same division as `costbench train --data`, so that numbers compare.
    parts = hold_out_configs(graph, HoldOutSpec(), seed=0)
    network = Network()
    train(network, LayoutDataset([args.file], count=16, rows=[parts.train]), args.steps)
    with torch.no_grad():
        chunks = torch.from_numpy(parts.unseen).split(64)
        scores = torch.cat([network(layout_data(graph, chunk.numpy())) for chunk in chunks])
    tau = kendall_tau(scores.numpy(), graph.runtime_ns[parts.unseen])
    print(f"Kendall's tau on {len(parts.unseen)} unseen configs: {tau:.3f}")


if __name__ == "__main__":
    main()
