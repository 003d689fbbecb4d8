"""The example trains on measured kernels and prints the rank correlation it reached."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from tests.features.finished_stages import write_stages


def test_the_network_ranks_better_than_chance(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.train_your_own_network import main

    write_stages(tmp_path, repository)
    monkeypatch.setattr(sys, "argv", ["train_your_own_network.py", str(tmp_path), "--epochs", "8"])
    main()
    printed = re.fullmatch(r"Kendall's tau on (\d+) validation kernels: (\S+)\n", capsys.readouterr().out)
    assert printed is not None
    assert int(printed[1]) == 5
    # Equal seeds give equal weights; 0 is chance.
    assert float(printed[2]) > 0.2


def test_the_loss_compares_decisions_within_kernels_only() -> None:
    from costbench.features.pyg_dataset import KernelData
    from examples.train_your_own_network import loss

    # log runtimes: 0, 1 of the first kernel and 5, 5, 5 of the second.
    batch = KernelData(
        runtime_ns=torch.tensor([0.0, 1.0, 5.0, 5.0, 5.0], dtype=torch.float64).exp(),
        kernel_of_decision=torch.tensor([0, 0, 1, 1, 1]),
    )
    batch.num_graphs = 2
    assert float(loss(torch.tensor([7.0, 8.0, 0.0, 0.0, 0.0]), batch)) == pytest.approx(0.0, abs=1e-10)
    # Errors of the first kernel are 8 and 6, one from their mean each: squares 1, 1, 0, 0, 0.
    assert float(loss(torch.tensor([8.0, 7.0, 0.0, 0.0, 0.0]), batch)) == pytest.approx(2 / 5)
