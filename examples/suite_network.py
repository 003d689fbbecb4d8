"""An entry of the suite: a network of PyTorch Geometric that ranks the tile sizes of a kernel.

In the folder of this file:
`costbench suite score --model suite_network:Network --task tile --name "my network"`.
"""

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import SAGEConv, global_add_pool

from costbench_suite.task_data import TaskData

STEPS, KERNELS, DECISIONS, WIDTH = 300, 8, 16, 64


class Scorer(nn.Module):
    """Sums node states of a kernel, and scores them beside the features of its decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.opcode = nn.Embedding(256, WIDTH)
        self.first, self.second = SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)
        self.head = nn.Sequential(nn.LazyLinear(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, opcodes: torch.Tensor, edges: torch.Tensor, decisions: torch.Tensor) -> torch.Tensor:
        """Returns a cost for each decision of a kernel, [n]."""
        states = self.first(self.opcode(opcodes), edges).relu()
        kernel = global_add_pool(self.second(states, edges).relu(), None)
        return self.head(torch.cat([kernel.expand(len(decisions), -1), decisions], dim=1)).squeeze(1)


class Network:
    """Fits `Scorer` to pairs of decisions: the slower one should cost more."""

    def fit(self, data: TaskData, train: list[str], validation: list[str]) -> None:
        """Fits it to the programs of a fold."""
        torch.manual_seed(0)
        self.scorer, draws = Scorer(), np.random.default_rng(0)
        programs = {name: list(self._kernels(data, name)) for name in train}
        optimizer = None
        for _ in range(STEPS):
            losses = []
            for name in draws.choice(train, KERNELS):
                opcodes, edges, decisions, runtimes = programs[name][draws.integers(len(programs[name]))]
                chosen = draws.permutation(len(runtimes))[:DECISIONS]
                costs = self.scorer(opcodes, edges, decisions[chosen])
                slower = runtimes[chosen][:, None] > runtimes[chosen]
                losses.append(nn.functional.softplus((costs[None, :] - costs[:, None])[slower]).sum())
            optimizer = optimizer or torch.optim.Adam(self.scorer.parameters(), lr=1e-3)
            optimizer.zero_grad()
            (sum(losses) / (KERNELS * DECISIONS)).backward()
            optimizer.step()

    def predict(self, data: TaskData, program: str) -> np.ndarray:
        """Returns a cost for each decision of a program."""
        with torch.no_grad():
            return np.concatenate(
                [self.scorer(*kernel[:3]).numpy() for kernel in self._kernels(data, program)]
            )

    def _kernels(self, data: TaskData, program: str):
        rows = data.decisions(program)
        columns = [name for name in rows if name not in ("id", "decision", "estimate_ns", "runtime_ns")]
        by_id = rows.groupby("id", sort=False)
        for kernel in data.table("kernels", program, ("id", "opcodes", "edges")).itertuples():
            decisions = by_id.get_group(kernel.id)
            values = decisions[columns].to_numpy(np.float32)
            yield (
                torch.from_numpy(kernel.opcodes.astype(np.int64)),
                torch.from_numpy(kernel.edges.reshape(-1, 2).T.astype(np.int64)),
                torch.from_numpy(np.sign(values) * np.log1p(np.abs(values))),
                torch.tensor(decisions["runtime_ns"].to_numpy()),
            )
