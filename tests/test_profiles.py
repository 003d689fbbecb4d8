"""A profile changes numbers only: same stages, same parameters, another place for what comes out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from costbench.datasets.splits import reported_split
from costbench.experiments.autotuning.work_items import AutotuneParams, load_tuned, tuned_cells
from costbench.experiments.grid.cells import experiment_names, listed_as
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import Params, load_params, load_sections
from costbench.experiments.profiles import profiles, sizes
from costbench.experiments.stages.sweep import load_sweep
from costbench.experiments.sweeps.space import resolve
from costbench.params import load_yaml
from costbench.reports.claims.claim import Claim, Side, load_claims
from costbench.reports.results import FOLDS, PRIMARY_CHIP
from costbench.reports.tables.learning_curves import is_curve
from costbench.tasks import LEARNED
from costbench.training.spec import AnyTrainSpec, TrainSpec

PROFILES = ("smoke", "evidence", "paper")


def test_the_sizes_of_all_profiles_are_known(repository: Path) -> None:
    known = {name: sizes(path) for name, path in profiles(repository).items()}
    assert set(PROFILES) < set(known)
    assert all(size.name == name and size.runs > 0 for name, size in known.items())


def without_experiments(params: dict[str, object]) -> dict[str, object]:
    return {name: section for name, section in params.items() if name != "experiments"}


def key_paths(value: object, prefix: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {prefix}
    return {path for key, child in value.items() for path in key_paths(child, f"{prefix}.{key}")}


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_the_pipeline_of_the_default_one(repository: Path, name: str) -> None:
    """`make profiles` copies it; a link would be read as text where DVC compares with a revision of git."""
    assert (repository / "profiles" / name / "dvc.yaml").read_bytes() == (
        repository / "dvc.yaml"
    ).read_bytes()


@pytest.mark.parametrize("name", [*PROFILES, "headline"])
def test_the_autotuners_of_a_profile_ask_its_models(repository: Path, name: str) -> None:
    """Wrong names would be found after hours of training."""
    params = load_params(repository / "profiles" / name / "params.yaml")
    section = params.section("autotune", AutotuneParams)
    for tuning in (section.tile, section.fusion):
        assert all(tuned_cells(load_tuned(params, model)) for model in tuning.models)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_sets_the_same_parameters(repository: Path, name: str) -> None:
    ours, default = (
        load_sections(folder / "params.yaml") for folder in (repository / "profiles" / name, repository)
    )
    # Keys with the default value need not be written, and the default profile leaves them out.
    assert key_paths(without_experiments(default)) <= key_paths(without_experiments(ours))


def test_experiments_are_those_of_the_evidence(repository: Path) -> None:
    """All of them in `paper`; in `smoke` and the default profile some, with some of their variants."""
    folders = (*(repository / "profiles" / name for name in PROFILES), repository)
    entries = [load_sections(folder / "params.yaml")["experiments"] for folder in folders]
    smoke, evidence, paper, default = (
        {(name, variant) for name, entry in one.items() for variant in entry["variants"]} for one in entries
    )
    assert paper == evidence
    assert smoke < evidence
    assert default < evidence
    assert all(
        changes == entries[1][name]["variants"][variant]
        for name, entry in entries[3].items()
        for variant, changes in entry["variants"].items()
    )


COMPARED = (
    ("main", "hybrid", "tuned", "rivals", "tpugraphs"),
    ("ablations", "loss"),
    ("folds",),
    ("differences",),
    ("rates",),
)
"""Experiments whose rows stand in one table or claim, by the first word of their names."""
CURVES = "curves"
"""First word of the names of learning curves, whose points differ in their budgets."""


def validated_on(spec: AnyTrainSpec) -> object:
    return spec.validation if isinstance(spec, TrainSpec) else spec.validation_configs


@pytest.mark.parametrize("name", ["", *(f"profiles/{name}" for name in PROFILES)])
def test_what_is_compared_has_seen_as_many_samples(repository: Path, name: str) -> None:
    """Kernels and decisions of a step, steps, and the validations that choose among them, task by task."""
    params = load_params(repository / name / "params.yaml")
    budgets: dict[tuple[str, str], set[object]] = {}
    for experiment in [load_experiment(params, one) for one in experiment_names(params)]:
        if experiment.name.startswith(CURVES):
            continue
        (group,) = (own[0] for own in COMPARED if experiment.name.split("-")[0] in own)
        for spec in (variant.spec for variant in experiment.variants.values()):
            budget = spec.epochs, spec.patience, spec.steps_per_epoch, spec.per_step, validated_on(spec)
            budgets.setdefault((group, experiment.grid.task), set()).add(budget)
    assert {key: len(found) for key, found in budgets.items()} == dict.fromkeys(budgets, 1)


@pytest.mark.parametrize(
    "file",
    [
        "params.yaml",
        *(f"profiles/{name}/params.yaml" for name in (*PROFILES, "headline", "xla_cpu")),
        *(f"profiles/headline/{name}.yaml" for name in ("layouts", "second_chip")),
    ],
)
def test_points_of_learning_curves_are_the_same_budgets_for_all_networks(repository: Path, file: str) -> None:
    """As many steps as their names say, of equal samples, with equal validations."""
    params = load_params(repository / file)
    for one in experiment_names(params):
        points = {name: v for name, v in load_experiment(params, one).variants.items() if is_curve(name)}
        budgets: dict[int, set[object]] = {}
        networks: dict[int, set[str]] = {}
        for variant, settings in points.items():
            network, _, steps = variant.removeprefix("curve-").rpartition("-")
            spec = settings.spec
            assert spec.epochs * spec.steps_per_epoch == int(steps), variant
            budgets.setdefault(int(steps), set()).add(
                (spec.epochs, spec.patience, spec.per_step, validated_on(spec))
            )
            networks.setdefault(int(steps), set()).add(network)
        assert all(len(found) == 1 for found in budgets.values())
        assert len({frozenset(found) for found in networks.values()}) <= 1 or not one.startswith(CURVES)


def samples_of_networks(params: Params) -> dict[tuple[str, Side], int]:
    """Samples that the networks of a profile see, by task and by what their rows are listed under."""
    counts: dict[tuple[str, Side], int] = {}
    for experiment in [load_experiment(params, one) for one in experiment_names(params)]:
        for cell in experiment.cells:
            model, variant = listed_as(cell, cell.chip)
            spec = experiment.variants[cell.variant].spec
            samples = spec.epochs * spec.steps_per_epoch * math.prod(spec.per_step)
            # Of experiments that train one variant in one place, the first one's rows go by its name.
            counts.setdefault(
                (cell.task, Side(model, variant, reported_split(cell.split), cell.chip)), samples
            )
    return counts


def unequal(claims: Sequence[Claim], samples: Mapping[tuple[str, Side], int]) -> dict[str, set[int]]:
    """Claims whose networks for one task see different numbers of samples, and these numbers."""
    seen: dict[tuple[str, str], set[int]] = {}
    for claim in claims:
        for side in claim.sides:
            task = side.task or claim.task
            key = task, replace(side.rows, kernels="all")
            if key in samples:
                seen.setdefault((claim.id, task), set()).add(samples[key])
    return {name: found for (name, _), found in seen.items() if len(found) > 1}


@pytest.mark.parametrize("name", ["", *(f"profiles/{name}" for name in PROFILES)])
def test_rivals_of_a_claim_see_as_many_samples(repository: Path, name: str) -> None:
    samples = samples_of_networks(load_params(repository / name / "params.yaml"))
    assert unequal(claims_on_folds_too(), samples) == {}


def claims_on_folds_too() -> tuple[Claim, ...]:
    """The papers' claims as printed, and with all sides on folds."""
    printed = load_claims()

    def moved(sides: tuple[Side, ...]) -> tuple[Side, ...]:
        return tuple(replace(side, split=FOLDS, chip=PRIMARY_CHIP) for side in sides)

    folds = (replace(c, id=f"{c.id}@folds", left=moved(c.left), right=moved(c.right)) for c in printed)
    return (*printed, *folds)


@pytest.mark.parametrize(
    ("curves", "compared"),
    [
        ("curves-tile", "headline-tile"),
        ("curves-fusion", "headline-fusion"),
        ("orders-inputs-tile", "inputs-tile"),
        ("orders-inputs-fusion", "inputs-fusion"),
        ("orders-networks-tile", "networks-tile"),
        ("orders-networks-fusion", "networks-fusion"),
        ("orders-rates-tile", "rates-tile"),
        ("orders-lpm2020", "lpm2020-fusion"),
        ("orders-tpugraphs", "tpugraphs-tile"),
    ],
)
def test_the_longest_points_of_learning_curves_are_the_compared_networks(
    repository: Path, curves: str, compared: str
) -> None:
    """So they are trained once, and a curve is of the network that it judges."""
    params = load_params(repository / "profiles/headline/params.yaml")
    variants = load_experiment(params, compared).variants
    longest: dict[str, tuple[int, AnyTrainSpec]] = {}
    for name, variant in load_experiment(params, curves).variants.items():
        _, network, steps = re.fullmatch(r"(curve)-(.+)-(\d+)", name).groups()  # type: ignore[union-attr]
        longest[network] = max(
            longest.get(network, (0, variant.spec)), (int(steps), variant.spec), key=itemgetter(0)
        )
    names = {"learned": "main", "lstm": "none-lstm"}
    assert len(longest) >= len(variants)
    for network, (_, spec) in longest.items():
        assert spec == variants[names.get(network, network)].spec, network


def test_a_rival_with_fewer_samples_is_found() -> None:
    claim = next(one for one in load_claims() if one.id == "lpm2020.fusion_vs_lstm")
    samples = {("fusion", Side()): 537_600, ("fusion", Side(variant="lpm2020-lstm")): 84_000}
    assert unequal((claim,), samples) == {"lpm2020.fusion_vs_lstm": {537_600, 84_000}}
    assert unequal((claim,), dict.fromkeys(samples, 84_000)) == {}


def test_profiles_share_no_output_folder(repository: Path) -> None:
    folders = [repository, *(repository / "profiles" / name for name in PROFILES)]
    runs: list[Any] = [load_yaml(folder / "params.yaml")["run"] for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        assert (folder / run["root"]).resolve() == repository
        assert repository / run["params"] == folder / "params.yaml"
    for key in ("out", "reports"):
        assert len({run[key] for run in runs}) == len(runs)


@pytest.mark.parametrize("task", LEARNED)
@pytest.mark.parametrize("name", ["", *(f"profiles/{name}" for name in PROFILES)])
def test_the_settings_of_train_are_a_point_of_the_space(repository: Path, name: str, task: str) -> None:
    """So they are the first trial: the best is at least as good, and a tuned model no blind bet."""
    sweep = load_sweep(load_params(repository / name / "params.yaml"))
    first = resolve(sweep.space[task], sweep.model.by_task[task], name, "sweep.space").of_the_model()
    assert {"net.encoder", "net.hidden", "optimizer.learning_rate"} <= set(first)
