"""Models that costbench trained on the suite's data: predictions have the numbers of their evaluation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import evaluate, split, train
from costbench.metrics.rows import read_rows
from costbench_suite.cli import app
from costbench_suite.task_data import TaskData
from costbench_suite.trained_models import predict_experiment
from tests.suite.conftest import PROGRAMS


@pytest.fixture(scope="module")
def trained(repository: Path, suite: Path, work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parameter file below whose folder an experiment was trained and evaluated, for a few steps."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copytree(work, folder / "out")
    sections = load_sections(repository / "profiles" / "smoke" / "params.yaml")
    of_suite = load_sections(folder / "out" / "params.yaml")
    sections |= {name: of_suite[name] for name in ("generate", "features", "split")}
    # Two folds: five programs are too few for three with validation sets.
    sections["split"] = sections["split"] | {"folds": {"k": 2, "seed": 0, "num_validation": 1}}
    sections["run"] |= {"root": str(folder), "out": "out", "programs": of_suite["run"]["programs"]}
    sections["evaluate"] = {"models": ["learned", "analytical", "trees"], "top_k": [1], "random_seeds": [0]}
    settings = {"epochs": 1, "batch": {"per_epoch": 3}, "validation": {"kernels": 8}}
    sections["experiments"] = {
        "few-steps": {
            "task": "tile", "splits": ["folds"], "chips": ["tpu_v3"], "baselines": True,
            "seeds": [0, 1], "settings": settings, "variants": {"main": {}},
        }
    }  # fmt: skip
    sections["baselines"]["tile"]["training"] = {"kernels": 8, "configs": 8}
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(sections))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COSTBENCH_TRACKING", "off")
        split.run(path)
        train.run(path, "few-steps")
        evaluate.run(path, "few-steps")
    return path


@pytest.mark.slow
def test_predictions_in_a_file_have_the_numbers_of_the_evaluation(
    trained: Path, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner, data = CliRunner(), ["--task", "tile", "--data", str(suite)]
    arguments = ["predict", "few-steps", "--params", str(trained), "--out", "predictions", *data]
    assert runner.invoke(app, arguments, catch_exceptions=False).exit_code == 0
    rows = read_rows(trained.parent / "out" / "evaluate" / "few-steps" / "rows.jsonl")
    for model in ("learned", "trees", "analytical"):
        scored = ["score", f"predictions/{model}.parquet", "--name", model, *data]
        assert runner.invoke(app, scored, catch_exceptions=False).exit_code == 0
        card = json.loads(Path(f"leaderboard/tile/{model}.json").read_text())
        by_program: dict[str, list[float]] = {program: [] for program in PROGRAMS}
        for row in rows:
            if (row.model, row.kernels, row.metric) == (model, "all", "kendall_tau"):
                by_program[row.program].append(row.value)
        means = [sum(values) / len(values) for values in by_program.values()]
        assert card["metrics"]["tau_mean"]["value"] == pytest.approx(sum(means) / len(means), abs=1e-12)


@pytest.mark.slow
def test_every_model_and_seed_predicts_every_program(trained: Path, suite: Path) -> None:
    predicted = predict_experiment(trained, "few-steps", TaskData(suite, "tile"))
    assert {"learned", "analytical", "trees"} <= set(predicted)
    assert sorted(predicted["learned"].costs) == [0, 1]
    assert all(set(costs) == set(PROGRAMS) for costs in predicted["learned"].costs.values())
