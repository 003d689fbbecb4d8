"""A project of a user's own: parts by dotted path in its folder, from parameters to rows of the report."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.compiler.program import compile_program, unique_kernels
from costbench.errors import CostbenchError, DataError
from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import evaluate, features, generate, inputs, split, train
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.hlo.reader import read_module
from costbench.metrics.rows import read_rows
from costbench.params import merge
from costbench.reports import stage as report
from tests.pipelines.workplace import PROGRAMS, REPOSITORY, TINY

FEATURES = "mynet:my_node_features"
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "conv": {"net": {"encoder": "mynet:MyConv"}},
    "reduction": {"net": {"reduction": "mynet:MyReduction(temperature=2.0)"}},
    "loss": {"loss": "mynet:my_loss(focus=5.0)"},
    "features": {"net": {"features": FEATURES}},
}
MINE = "mine"


def write_params(folder: Path, **changes: Any) -> Path:
    """Parameters of a project with one experiment, whose variants have a part of the user's own each."""
    sections: Any = load_sections(REPOSITORY / "profiles" / "smoke" / "params.yaml")
    for section, values in TINY.items():
        sections[section] = merge(sections[section], values)
    sections["run"] |= {
        "name": "project", "root": ".", "params": "params.yaml", "out": "out", "reports": "reports",
        "programs": str(REPOSITORY / "data" / "programs"), "jobs": 1,
    }  # fmt: skip
    sections["generate"] |= {"tasks": ["tile"], "chips": ["tpu_v2"], "programs": list(PROGRAMS)}
    sections["split"]["names"] = ["random"]
    sections["features"] = {"tasks": ["tile"], "chips": ["tpu_v2"], "nodes": [FEATURES]}
    sections["train"]["tile"] |= {"epochs": 1}
    sections["evaluate"]["models"] = ["analytical", "mymodel:LargestTile"]
    sections["experiments"] = {
        MINE: {"task": "tile", "splits": ["random"], "chips": ["tpu_v2"], "baselines": True}
        | {"variants": dict(VARIANTS)}
    }
    path = folder / "params.yaml"
    path.write_text(json.dumps(merge(sections, changes)))
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose stages have run, started in another folder."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(REPOSITORY / "examples" / "my_network.py", folder / "mynet.py")
    shutil.copy(REPOSITORY / "examples" / "my_cost_model.py", folder / "mymodel.py")
    params = write_params(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        patch.setenv("COSTBENCH_TRACKING", "off")
        for run in (inputs.run, generate.run, split.run, features.run, train.run, evaluate.run):
            run(params)
        report.run(params)
    return folder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")


def cell_of(variant: str) -> str:
    return f"tile-random-tpu_v2-{variant}-s0"


def keys(folder: Path) -> dict[str, str]:
    """Keys of the trained cells by variant."""
    trained = folder / "out" / "train" / MINE
    return {name: json.loads((trained / cell_of(name) / "done.json").read_text())["key"] for name in VARIANTS}


def test_every_part_has_rows_in_the_report(project: Path) -> None:
    rows = read_rows(project / "out" / "evaluate" / MINE / "rows.jsonl")
    taus = {
        name: [row.value for row in rows if (row.variant, row.metric) == (name, "kendall_tau")]
        for name in VARIANTS
    }
    assert all(taus.values())
    trained = project / "out" / "train" / MINE
    assert len({(trained / cell_of(name) / "weights.pt").read_bytes() for name in VARIANTS}) == len(VARIANTS)
    assert {row.model for row in rows} >= {"learned", "analytical", "mymodel:LargestTile"}
    summary = json.loads((project / "reports" / "summary.json").read_text())
    for variant in VARIANTS:
        assert f"tile/random/tpu_v2/learned@{variant}/tau_mean" in summary
    assert "tile/random/tpu_v2/mymodel:LargestTile/tau_mean" in summary
    tables = {path.stem: path.read_text() for path in (project / "reports" / "tables").glob("*.csv")}
    assert all(any(f"mine: {variant}" in text for text in tables.values()) for variant in VARIANTS)


def test_a_checkpoint_names_its_parts_and_prices_kernels_as_in_evaluation(project: Path) -> None:
    """The features of a user's own are computed again for a kernel that no stage has seen."""
    from costbench.models.checkpoint import load_checkpoint

    trained = project / "out" / "train" / MINE
    described = {name: json.loads((trained / cell_of(name) / "model.json").read_text()) for name in VARIANTS}
    assert described["conv"]["net"]["encoder"] == "mynet:MyConv"
    assert described["reduction"]["net"]["reduction"] == "mynet:MyReduction(temperature=2.0)"
    assert described["features"]["features"].endswith(f" {FEATURES}@1")
    shard = FeatureShard(feature_path(project / "out" / "features", "tile", "tpu_v2", PROGRAMS[0]))
    module = read_module(REPOSITORY / "data" / "programs" / f"{PROGRAMS[0]}.hlo.pb.zst")
    program = compile_program(module, PROGRAMS[0])
    kernels = {one.fingerprint: one.kernel for one in unique_kernels(program)}
    for name in VARIANTS:
        model = load_checkpoint(trained / cell_of(name))
        read = shard.with_estimate("", model.net.spec.features)
        for index in range(len(shard)):
            costs = model.predict(kernels[shard.fingerprint(index)], shard.tile_sizes(index))
            graph, decisions = read.graph(index), read.config_features(index)
            np.testing.assert_allclose(costs, model.predict_graph(graph, decisions), rtol=1e-5)


def test_only_what_changes_is_trained_again(project: Path) -> None:
    source, params = project / "mynet.py", project / "params.yaml"
    text, before = source.read_text(), keys(project)
    notes = project / "out" / "inputs"
    note = (notes / "train" / f"{MINE}.json").read_text()
    try:
        source.write_text(text.replace('"""Returns the new states."""', "# The new states."))
        train.run(params)
        inputs.run(params)
        assert keys(project) == before
        assert (notes / "train" / f"{MINE}.json").read_text() == note
        source.write_text(text.replace("focus: float = 3.0", "focus: float = 4.0"))
        train.run(params)
        inputs.run(params)
        changed = keys(project)
        assert (notes / "train" / f"{MINE}.json").read_text() != note
    finally:
        source.write_text(text)
    assert {name for name in VARIANTS if changed[name] != before[name]} == set(VARIANTS) - {"plain"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"net": {"encoder": "nowhere:MyConv"}}, r"net.encoder: nowhere:MyConv: no such module .expected"),
        ({"net": {"encoder": "mynet:my_loss"}}, r"encoder: mynet:my_loss: is no class of torch.nn.Module"),
        ({"net": {"encoder": "mynet:MyReduction"}}, r"encoder: mynet:MyReduction: takes no in_channels and"),
        ({"net": {"reduction": "mynet:MyConv"}}, r"reduction: mynet:MyConv: TypeError.*expected MyReduct"),
        ({"net": {"reduction": "mynet:MyReduction(t=1)"}}, r"reduction: .*unexpected keyword argument 't'"),
        ({"loss": "mynet:my_node_features"}, r"loss: mynet:my_node_features: TypeError.*expected .costs"),
        ({"loss": "hinged"}, r"variants.wrong.spec: .*'hinged', did you mean 'hinge'\?, must be one of"),
        ({"net": {"features": "mynet:math"}}, r"mynet-math/tile/.*'mynet:math' among `features.nodes`"),
        ({"loss": "mynet:my_loss", "monitor": "mape"}, r"monitor: mape needs absolute runtimes; loss mynet"),
    ],
)  # fmt: skip
def test_a_wrong_part_is_one_line_with_field_and_what_was_expected(
    project: Path, tmp_path: Path, changes: Mapping[str, object], message: str
) -> None:
    params = write_params(project, experiments={"wrong": {"task": "tile", "variants": {"wrong": changes}}})
    with pytest.raises(CostbenchError, match=message) as raised:
        train.run(params, "wrong")
    assert "\n" not in str(raised.value)
    write_params(project)


def test_a_checkpoint_without_its_module_says_so(project: Path, tmp_path: Path) -> None:
    from costbench.features.user_features import load_user_features
    from costbench.models.checkpoint import load_checkpoint

    trained, source = project / "out" / "train" / MINE, project / "mynet.py"
    text = source.read_text()
    loaded = sys.modules.pop("mynet")
    load_user_features.cache_clear()
    try:
        source.unlink()
        with pytest.raises(DataError, match=r"model.json: encoder: mynet:MyConv: no such module"):
            load_checkpoint(trained / cell_of("conv"))
        source.write_text(text.replace("version = 1", "version = 2"))
        with pytest.raises(DataError, match=r"features: trained on other features .*@1. .expected .*@2"):
            load_checkpoint(trained / cell_of("features"))
    finally:
        source.write_text(text)
        sys.modules["mynet"] = loaded
        load_user_features.cache_clear()
