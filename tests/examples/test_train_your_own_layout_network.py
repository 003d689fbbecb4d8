"""The example trains on one layout graph and prints the rank correlation it reached on unseen configs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic_layouts import write_random_graph


def test_the_network_ranks_unseen_configs_better_than_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.train_your_own_layout_network import main

    path = write_random_graph(tmp_path / "graph.arrow", 40, 8, 300, 4)
    monkeypatch.setattr(sys, "argv", ["train_your_own_layout_network.py", str(path), "--steps", "150"])
    main()
    printed = re.fullmatch(r"Kendall's tau on (\d+) unseen configs: (\S+)\n", capsys.readouterr().out)
    assert printed is not None
    assert 50 <= int(printed[1]) <= 70
    # Equal seeds give equal weights; 0 is chance.
    assert float(printed[2]) > 0.3
