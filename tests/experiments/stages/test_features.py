"""Stage `features`: what is made, kept, made again and removed, for tile, fusion and layout samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.layout_graphs import open_layout_graph
from costbench.datasets.layout_shards import config_features, layout_shard_path, open_layout_shard
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, fusion_parts
from costbench.datasets.storage import list_shards
from costbench.errors import DataError, ParamsError
from costbench.experiments.identity import read_identity
from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import features, generate
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.features.node import module_node_features
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import module_from_bytes
from costbench.target import load_target
from tests.pipelines.stage_flips import flip

PROGRAMS = ["rnn_char_b64_infer_f32", "wavernn_3_b1_infer_bf16"]


def profile(folder: Path, repository: Path, **features_section: object) -> Path:
    """Parameters of a run with tiles and fusions of two programs."""
    sections = load_sections(repository / "profiles" / "smoke" / "params.yaml")
    assert isinstance(sections, dict)
    sections["run"] |= {"root": str(repository), "out": str(folder / "out"), "jobs": 1}
    sections["generate"] |= {"tasks": ["tile", "fusion"], "programs": PROGRAMS}
    sections["generate"]["tile"] |= {"max_tiles_per_kernel": 6, "max_kernels_per_program": 4}
    sections["features"] = {"tasks": ["tile", "fusion"], "chips": ["tpu_v2"]} | features_section
    path = folder / "params.yaml"
    path.write_text(json.dumps(sections))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Folder of a profile whose samples and features are there."""
    folder = tmp_path_factory.mktemp("profile")
    params = profile(folder, repository)
    generate.run(params)
    features.run(params)
    return folder


def test_every_sample_has_features(made: Path) -> None:
    found = list_shards(made / "out" / "features")
    assert len(found) == 4
    for program in PROGRAMS:
        tiles = FeatureShard(feature_path(made / "out" / "features", "tile", "tpu_v2", program))
        assert len(tiles) == 4
        assert int(tiles.num_configs().max()) == 6
        fused = FeatureShard(feature_path(made / "out" / "features", "fusion", "tpu_v2", program))
        parts = fusion_parts(made / "out" / "generate", "tpu_v2", program)
        assert len(fused) == sum(part.num_kernels for part in parts) > 4
        assert set(fused.num_configs().tolist()) == {1}
        runtimes = np.concatenate([part["kernel_runtime_ns"] for part in parts])
        assert [int(fused.runtime_ns(i)[0]) for i in range(len(fused))] == runtimes.tolist()


def test_fused_kernels_are_read_back_across_parts(made: Path) -> None:
    data = made / "out" / "generate"
    parts = fusion_parts(data, "tpu_v2", PROGRAMS[0])
    # The same part twice stands for a program of two parts.
    kernels = MeasuredKernels((*parts, *parts), CompiledPrograms(data), load_target("tpu_v2").architecture)
    half = len(kernels) // 2
    assert kernels.kernel(half).fingerprint == kernels.kernel(0).fingerprint
    assert kernels.kernel(half - 1).fingerprint != kernels.kernel(half).fingerprint
    first = kernels.kernel(0)
    assert len(first.tile_sizes) == len(first.runtime_ns) == 1
    assert first.default_ns == first.runtime_ns[0] == parts[0]["kernel_runtime_ns"][0]


def test_a_second_run_changes_nothing(made: Path, repository: Path) -> None:
    folder = made / "out" / "features"
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in list_shards(folder)}
    identity = read_identity(folder)
    features.run(profile(made, repository))
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in list_shards(folder)} == before
    assert read_identity(folder) == identity


def test_a_shard_of_other_samples_is_made_again_and_what_is_not_wanted_removed(
    made: Path, repository: Path
) -> None:
    folder = made / "out" / "features"
    damaged = feature_path(folder, "tile", "tpu_v2", PROGRAMS[0])
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:1000])
    stale = feature_path(folder, "tile", "tpu_v9", "gone")
    stale.parent.mkdir()
    stale.write_bytes(b"")
    features.run(profile(made, repository))
    assert damaged.read_bytes() == whole
    assert not stale.exists()


def test_a_damaged_note_is_made_again_before_the_folder_is_sealed(made: Path, repository: Path) -> None:
    folder = made / "out" / "features"
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    damaged = folder / "notes" / "tpu_v2" / f"{PROGRAMS[0]}.json"
    flip(damaged, 8 * len(before[damaged]) // 2)
    features.run(profile(made, repository))
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_shards_by_other_code_are_made_again_with_equal_bytes(made: Path, repository: Path) -> None:
    folder = made / "out" / "features"
    before = {path: path.read_bytes() for path in list_shards(folder)}
    times = {path: path.stat().st_mtime_ns for path in before}
    for note in (*folder.glob("programs/*"), *folder.glob("notes/*/*")):
        note.write_text(note.read_text().replace('"key": "', '"key": "of an older one'))
    features.run(profile(made, repository))
    assert {path: path.read_bytes() for path in list_shards(folder)} == before
    assert all(path.stat().st_mtime_ns > times[path] for path in times)


def test_estimates_of_other_qualities_leave_feature_shards_as_they_are(made: Path, repository: Path) -> None:
    folder = made / "out" / "features"
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in list_shards(folder)}
    features.run(profile(made, repository, estimates=["roofline", "expert"]))
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in list_shards(folder)}
    assert {path: after[path] for path in before} == before
    assert len(after) == 3 * len(before)
    for path in before:
        shard = FeatureShard(path)
        expert, roofline = shard.with_estimate("expert"), shard.with_estimate("roofline")
        for index in range(len(shard)):
            assert (expert.analytical_ns(index) > 0).all()
            # Everything that a roofline leaves out takes time.
            assert (roofline.analytical_ns(index) < expert.analytical_ns(index)).all()
    features.run(profile(made, repository))
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in list_shards(folder)} == before
    with pytest.raises(ParamsError, match=r"estimates are \['xla'\], must be different ones of roofline"):
        features.run(profile(made, repository, estimates=["xla"]))


def test_features_of_a_users_own_lie_beside_the_shards(
    made: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    folder, source = made / "out" / "features", made / "own_node_features.py"
    before = {path: path.stat().st_mtime_ns for path in list_shards(folder)}
    source.write_text(
        "import numpy as np\n\n"
        "def places(kernel):\n    n = len(kernel.nodes)\n"
        "    return np.stack([np.arange(n), np.full(n, n)], axis=1)\n"
    )
    name = "own_node_features:places"
    features.run(profile(made, repository, nodes=[name]))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for path in before:
        shard = FeatureShard(path)
        extended = shard.with_estimate("", name)
        sizes = shard.num_nodes()
        for index in range(len(shard)):
            rows = extended.graph(index).node_features
            np.testing.assert_array_equal(rows[:, :140], shard.graph(index).node_features)
            np.testing.assert_array_equal(rows[:, 140], np.arange(sizes[index]))
            assert (rows[:, 141] == sizes[index]).all()
        kernels, configs = np.arange(len(shard)), [np.arange(1)] * len(shard)
        packed = extended.columns.pack(kernels, configs)
        assert packed.node_features.shape == (sizes.sum(), 142)
        np.testing.assert_array_equal(packed.node_features[:, 141], np.repeat(sizes, sizes))
        extremes = extended.columns.extremes().node
        assert extremes[:, 140:].tolist() == [[0, sizes.min()], [sizes.max() - 1, sizes.max()]]
    beside = {path: path.stat().st_mtime_ns for path in list_shards(folder) if path not in before}
    source.write_text("# A remark changes nothing.\n" + source.read_text())
    features.run(profile(made, repository, nodes=[name]))
    assert {path: path.stat().st_mtime_ns for path in beside} == beside
    source.write_text(source.read_text().replace("np.full(n, n)", "np.full(n, 2 * n)"))
    features.run(profile(made, repository, nodes=[name]))
    assert all(path.stat().st_mtime_ns > beside[path] for path in beside)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(
        ParamsError, match=r"features.nodes: own_nowhere:f: no such module .expected own_nowhere"
    ):
        features.run(profile(made, repository, nodes=["own_nowhere:f"]))
    with pytest.raises(ParamsError, match=r"features: own_node_features:np: is a module"):
        features.run(profile(made, repository, nodes=["own_node_features:np"]))
    features.run(profile(made, repository))
    assert set(list_shards(folder)) == set(before)
    with pytest.raises(DataError, match=r"'own_node_features:places' among `features.nodes`"):
        FeatureShard(next(iter(before)), features=name)


def test_a_chip_that_is_added_leaves_the_files_of_the_others(tmp_path: Path, repository: Path) -> None:
    """In both stages, whichever of their chips it is."""
    params = profile(tmp_path, repository)
    sections = json.loads(params.read_text())
    tasks = ["tile", "fusion", "layout"]
    sections["generate"] |= {"tasks": tasks, "programs": PROGRAMS[:1]}
    sections["generate"]["fusion"] |= {"max_configs": 4}
    sections["generate"]["layout"] |= {"max_configs": 4}

    def run(*chips: str) -> dict[Path, tuple[int, bytes]]:
        sections["generate"]["chips"] = list(chips)
        sections["features"] = {"tasks": tasks, "chips": list(chips)}
        params.write_text(json.dumps(sections))
        generate.run(params)
        features.run(params)
        files = [path for path in (tmp_path / "out").rglob("*/*/*/*.arrow") if "tpu_v2" in path.parts]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = run("tpu_v2")
    assert {path.relative_to(tmp_path / "out").parts[1] for path in before} == set(tasks)
    assert run("tpu_v3", "tpu_v2") == before
    assert run("tpu_v2") == before


def test_samples_that_are_not_there_are_named(made: Path, repository: Path) -> None:
    with pytest.raises(DataError, match=r"tile/tpu_v3: no shards"):
        features.run(profile(made, repository, chips=["tpu_v3"]))
    features.run(profile(made, repository))


def test_wrong_parameters_are_named(made: Path, repository: Path) -> None:
    with pytest.raises(ParamsError, match="tasks"):
        features.run(profile(made, repository, tasks=[]))
    with pytest.raises(ParamsError, match="registers"):
        features.run(profile(made, repository, tasks=["registers"]))


def test_layouts_become_graphs_of_their_collections(tmp_path: Path, repository: Path) -> None:
    names = [PROGRAMS[0], "small_bert_L2_H512_b128_infer_f32"]
    params = profile(tmp_path, repository, tasks=["layout"])
    sections = json.loads(params.read_text())
    sections["generate"] |= {"tasks": ["layout"], "programs": names}
    params.write_text(json.dumps(sections))
    generate.run(params)
    features.run(params)
    folder = tmp_path / "out" / "features"
    found = sorted(str(path.relative_to(folder / "layout")) for path in list_shards(folder))
    assert found == [
        f"tpu_v2/layout-{family}-{search}/{name}.arrow"
        for family, name in (("nlp", names[1]), ("xla", names[0]))
        for search in ("default", "random")
    ]
    data = tmp_path / "out" / "generate"
    for place in found:
        graph = open_layout_graph(folder / "layout" / place)
        shard = open_layout_shard(layout_shard_path(data, "tpu_v2", graph.program))
        module = module_from_bytes(shard["program"].tobytes(), where=graph.program)
        assert graph.collection.replace(":", "-") == place.split("/")[1]
        assert (graph.node_features == module_node_features(module)).all()
        assert graph.num_nodes == module.num_instructions
        rows = np.isin(shard["config_source"], [0, 2 if "default" in place else 1])
        assert graph.runtime_ns.tolist() == shard["config_runtime_ns"][rows].tolist()
        assert (graph.config_features(slice(None)) == config_features(shard)[rows]).all()
        opcodes = set(graph.opcodes[graph.node_config_ids].tolist())
        assert opcodes <= {int(Opcode.CONVOLUTION), int(Opcode.DOT), int(Opcode.RESHAPE)}
    before = {path: path.stat().st_mtime_ns for path in list_shards(folder)}
    features.run(params)
    assert {path: path.stat().st_mtime_ns for path in list_shards(folder)} == before
