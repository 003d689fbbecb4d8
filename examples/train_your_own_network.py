"""Train a network of your own on measured kernels and print how well it ranks their tile sizes.

    python examples/train_your_own_network.py out/smoke --split manual

The folder is that of a profile whose stages `features` and `split` are done (`make repro` or `make demo`).
Everything between the two rulers is plain PyTorch Geometric: exchange it for what you want to try.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch_geometric.loader import DataLoader
from torch_geometric.nn import SAGEConv, global_mean_pool
from torch_geometric.transforms import Compose
from torch_geometric.utils import scatter

from costbench.features.pyg_dataset import (
    NUM_OPCODES,
    KernelData,
    KernelDataset,
    SampleDecisions,
    ScaleFeatures,
)
from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import kendall_tau


# ------------------------------------------------------------------------------------------------------
class Network(nn.Module):
    """Scores of decisions from the mean state of a kernel's nodes; lower is faster."""

    def __init__(self, scale: ScaleFeatures, hidden: int = 64) -> None:
        super().__init__()
        self.opcode = nn.Embedding(NUM_OPCODES, hidden)
        self.node = nn.Linear(scale.node.num_outputs, hidden)
        self.convs = nn.ModuleList(SAGEConv(hidden, hidden) for _ in range(3))
        widths = 2 * hidden + scale.config.num_outputs
        self.score = nn.Sequential(nn.Linear(widths, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.static = nn.Linear(scale.static.num_outputs, hidden)

    def forward(self, batch: KernelData) -> Tensor:
        states = self.opcode(batch.opcode) + self.node(batch.x)
        for conv in self.convs:
            states = states + conv(states, batch.edge_index).relu()
        kernels = global_mean_pool(states, batch.batch, batch.num_graphs)
        kernels = torch.cat([kernels, self.static(batch.static_features)], dim=1)
        decisions = torch.cat([kernels[batch.kernel_of_decision], batch.config_features], dim=1)
        return self.score(decisions).squeeze(1)


def loss(scores: Tensor, batch: KernelData) -> Tensor:
    """Returns the squared error of log runtimes within each kernel, whatever the kernel's mean."""
    errors = scores - batch.runtime_ns.double().log().float()
    means = scatter(errors, batch.kernel_of_decision, dim_size=batch.num_graphs, reduce="mean")
    return (errors - means[batch.kernel_of_decision]).square().mean()


def train(network: Network, kernels: KernelDataset, epochs: int) -> None:
    """Runs Adam over shuffled batches of 16 kernels."""
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in DataLoader(kernels, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            loss(network(batch), batch).backward()
            optimizer.step()


# ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def validation_tau(network: Network, kernels: KernelDataset) -> float:
    """Kendall's tau-b within kernels, averaged over those of two or more decisions."""
    ranked = kernels[kernels.num_decisions() > 1]
    return mean_without_nan(
        [kendall_tau(network(kernel), kernel.runtime_ns) for kernel in DataLoader(ranked, batch_size=1)]
    )


def main() -> None:
    """Trains and prints one line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", help="output folder of a profile, such as out/laptop")
    parser.add_argument("--task", default="tile", choices=["tile", "fusion"])
    parser.add_argument("--chip", help="of those that the folder has features of (the first)")
    parser.add_argument("--split", default="random")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    wanted = {"task": args.task, "chip": args.chip, "split": args.split}
    kernels = KernelDataset(args.folder, part="train", **wanted)
    if not (kernels.num_decisions() > 1).any():
        parser.error(f"kernels of the task {args.task} have one decision each, so there is nothing to rank")
    scale = ScaleFeatures(kernels)
    kernels.transform = Compose([SampleDecisions(32), scale])
    network = Network(scale)
    train(network, kernels, args.epochs)
    validation = KernelDataset(args.folder, part="validation", transform=scale, **wanted)
    tau = validation_tau(network, validation)
    print(f"Kendall's tau on {len(validation)} validation kernels: {tau:.3f}")


if __name__ == "__main__":
    main()
