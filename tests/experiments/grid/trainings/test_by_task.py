from __future__ import annotations

from costbench.experiments.grid.training_run import train_cell
from costbench.experiments.grid.trainings.by_task import TRAININGS, training_code
from costbench.experiments.identity import closure


def modules_of(task: str) -> set[str]:
    return set(closure(train_cell, type(TRAININGS[task])).modules)


def test_networks_of_layouts_are_no_part_of_what_tile_networks_follow_from() -> None:
    tiles, layouts = modules_of("tile"), modules_of("layout")
    assert "costbench.models.layout.network" in layouts - tiles
    assert "costbench.models.networks.cost_network" in tiles - layouts
    assert training_code("tile") == training_code("fusion") != training_code("layout")
