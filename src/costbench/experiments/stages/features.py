"""Stage `features`: computes the inputs of models of all measured kernels and layouts, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from costbench.artifacts import digest_files
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import QUALITIES, knowledge_of
from costbench.datasets.layout_graphs import write_layout_graph
from costbench.datasets.layout_shards import collection_folder, layout_shard_path
from costbench.datasets.measured_kernels import (
    CompiledPrograms,
    MeasuredKernels,
    compiled_program_path,
    fusion_parts,
    kernel_view,
    shard_path,
)
from costbench.datasets.record_types import FEATURES_VERSION, FUSION, LAYOUT_GRAPH
from costbench.datasets.recorded_kernels import is_recorded, name_of_recorded
from costbench.datasets.storage import Shard, Shards, ShardSummary
from costbench.errors import DataError
from costbench.execution.dotted import is_part
from costbench.execution.workers import NO_FLAGS, BackendFlags
from costbench.experiments.identity import closure, identify, part_digest, read_identity, write_identity
from costbench.experiments.parameter_file import load_params
from costbench.experiments.progress import ShardProgress
from costbench.experiments.workspace import load_workspace
from costbench.features.feature_shards import (
    estimates_path,
    extras_path,
    feature_path,
    write_estimates,
    write_extras,
    write_features,
    write_recorded_features,
)
from costbench.features.graph_tensors import ProgramFeatures, program_features
from costbench.features.tpugraphs_graphs import layout_graph, searches_of
from costbench.features.user_features import load_user_features
from costbench.params import later
from costbench.programs.manifest import user_programs
from costbench.store import Entry, Progress, WorkItem, compute, key_of, remove_outdated
from costbench.target import Architecture, load_target
from costbench.tasks import TaskName


@dataclass(frozen=True)
class FeaturesParams:
    """Section `features`: the tasks and chips whose samples are prepared for training.

    Attributes:
        tasks: decisions to learn about, among those of the stage `generate`.
        chips: names of chips, or YAML files, among those of the stage `generate`.
        estimates: further qualities of estimates that experiments ask for, besides that of the chip's own
            compiler: keys of `costbench.compiler.estimate_quality.QUALITIES`.
        nodes: functions of your own, `module:function`, that compute further features of the nodes of tile
            and fusion kernels; a network reads those that its `net.features` names.
    """

    tasks: tuple[TaskName, ...]
    chips: tuple[str, ...]
    estimates: tuple[str, ...] = ()
    nodes: tuple[str, ...] = later(())

    def __post_init__(self) -> None:
        for name in ("tasks", "chips"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        if len(set(self.estimates)) != len(self.estimates) or not set(self.estimates) <= set(QUALITIES):
            known = ", ".join(QUALITIES)
            raise ValueError(f"estimates are {list(self.estimates)}, must be different ones of {known}")
        if len(set(self.nodes)) != len(self.nodes) or not all(map(is_part, self.nodes)):
            raise ValueError(f"nodes are {list(self.nodes)}, must be different ones of module:function")


@dataclass(frozen=True)
class ShardSpec:
    """One feature shard to make.

    Attributes:
        task: the compiler's decision.
        chip: name of the chip.
        architecture: architecture of the chip; None for a real machine, whose kernels have no tile sizes.
        sources: shards that it is made from.
        path: path of the feature shard.
        key: digest of the data that it is made from, with the version of its features.
        search: whose configs it holds; empty where a task has one feature shard per program and chip.
        estimate: quality of the estimates that are all it holds; empty for a feature shard.
        nodes: dotted path of the further features of nodes that are all it holds; likewise.
    """

    task: TaskName
    chip: str
    architecture: Architecture | None
    sources: tuple[Path, ...]
    path: Path
    key: str
    search: str = ""
    estimate: str = ""
    nodes: str = ""

    @property
    def is_beside(self) -> bool:
        """Returns whether it holds what is beside a feature shard, of the same samples."""
        return bool(self.estimate or self.nodes)


@dataclass(frozen=True)
class ProgramItem:
    """Work item: all feature shards of one program, so that the program is parsed once.

    Attributes:
        data: folder of the data set.
        program: name of the program.
        shards: shards to make by entry: of a chip, of a quality of estimates, of a function of a user's.
            What is added leaves those of the others as they are.
    """

    data: Path
    program: str
    shards: tuple[tuple[Entry, tuple[ShardSpec, ...]], ...]

    @property
    def specs(self) -> tuple[ShardSpec, ...]:
        """Returns all shards."""
        return tuple(shard_spec for _, several in self.shards for shard_spec in several)


def run(params: Path, flags: BackendFlags = NO_FLAGS) -> None:
    """Makes the feature shards that are missing, and removes those that the parameters no longer ask for.

    Args:
        params: the parameter file.
        flags: choice of the backend on which the shards are made.

    Raises:
        CostbenchError: for wrong parameters, a stage `generate` that has not finished, damaged shards.
    """
    profile = load_params(params)
    workspace = load_workspace(profile, flags)
    section = profile.section("features", FeaturesParams)
    data, folder = workspace.stage("generate"), workspace.stage("features")
    before = read_identity(data)
    work_items = _work_items(section, data, folder)
    paths = [shard_spec.path for item in work_items for shard_spec in item.task.specs]
    notes = [path for item in work_items for entry, _ in item.task.shards for path in entry.paths]
    remove_outdated(folder, [*notes, *(path for item in work_items for path in item.entry.paths)])
    counted = {
        (shard_spec.task, item.name, shard_spec.chip) for item in work_items for shard_spec in item.task.specs
    }
    with ShardProgress(len(counted), label="features") as progress:

        def count(program: Progress[Shards]) -> None:
            for summary in program.result.summaries:
                progress.made(summary)

        title = "programs with features"
        compute(make_features, Shards, work_items, workspace.backend, title, count)
    of_user = {entry.name for entry in user_programs(workspace.programs)}
    corpus = [path for path in paths if path.stem not in of_user]
    write_identity(folder, identify(__name__, section, digest_files(corpus, folder)[:16], before))


def make_features(item: WorkItem[ProgramItem]) -> Shards:
    """Makes the feature shards of a program that are missing, and keeps their summaries.

    Raises:
        DataError: for a damaged shard or a program that does not fit it.
        ParamsError: for a function of a user's that fails.
    """
    program = _Program(item.task)
    made = [
        entry.get(Shards, partial(_make_shards, entry.key, shards, program))
        for entry, shards in item.task.shards
    ]
    return item.keep(Shards(item.key, tuple(summary for shards in made for summary in shards.summaries)))


def _make_shards(key: str, shards: Sequence[ShardSpec], program: _Program) -> Shards:
    for shard_spec in shards:
        READERS[shard_spec.task].write(shard_spec, program)
    return Shards(key, tuple(_summary(shard_spec) for shard_spec in shards if not shard_spec.is_beside))


def _summary(shard_spec: ShardSpec) -> ShardSummary:
    shard = Shard.open(shard_spec.path)
    name, chip = str(shard.metadata["program"]), str(shard.metadata["chip"])
    return ShardSummary(shard_spec.task, name, chip, shard.num_kernels, shard.num_configs, 0, 0.0)


class _Program:
    """A compiled program, parsed when a task first needs it."""

    def __init__(self, item: ProgramItem) -> None:
        self.name = item.program
        self.modules = CompiledPrograms(item.data, 1)

    @cached_property
    def features(self) -> ProgramFeatures:
        return program_features(self.modules.module(self.name))

    def metadata(self, shard_spec: ShardSpec, application: str) -> dict[str, object]:
        """Returns what a feature shard says it was made from."""
        return {
            "task": shard_spec.task,
            "program": self.name,
            "application": application,
            "chip": shard_spec.chip,
            "key": shard_spec.key,
        }


def _write_kernels(shard_spec: ShardSpec, program: _Program) -> None:
    shards = [Shard.open(path) for path in shard_spec.sources]
    if shard_spec.architecture is None:
        _write_recorded(shard_spec, program, *shards)
        return
    samples = MeasuredKernels(shards, program.modules, shard_spec.architecture)
    kernels = [samples.kernel(index) for index in range(len(samples))]
    metadata = program.metadata(shard_spec, samples.application)
    if shard_spec.estimate:
        model = AnalyticalModel(shard_spec.architecture, knowledge_of(shard_spec.estimate))
        write_estimates(shard_spec.path, kernels, model, metadata)
    elif shard_spec.nodes:
        views, fingerprints = [m.kernel for m in kernels], [m.fingerprint for m in kernels]
        write_extras(shard_spec.path, views, fingerprints, load_user_features(shard_spec.nodes), metadata)
    else:
        model = AnalyticalModel(shard_spec.architecture)
        write_features(shard_spec.path, kernels, program.features, model, metadata)


def _write_recorded(shard_spec: ShardSpec, program: _Program, shard: Shard) -> None:
    name = name_of_recorded(shard_spec.chip, program.name)
    metadata = program.metadata(shard_spec, str(shard.metadata["application"]))
    module = program.modules.module(name)
    if shard_spec.nodes:
        kernels = [kernel_view(shard, index, module) for index in range(shard.num_kernels)]
        fingerprints = [bytes(row).hex() for row in shard["kernel_fingerprint"]]
        write_extras(shard_spec.path, kernels, fingerprints, load_user_features(shard_spec.nodes), metadata)
    else:
        write_recorded_features(shard_spec.path, shard, program_features(module), metadata)


def _write_layouts(shard_spec: ShardSpec, program: _Program) -> None:
    (source,) = shard_spec.sources
    application = str(Shard.open(source).metadata["application"])
    metadata = program.metadata(shard_spec, application)
    write_layout_graph(shard_spec.path, layout_graph(source, shard_spec.search), metadata)


@dataclass(frozen=True)
class _Reader:
    """How the samples of a task become features.

    Attributes:
        paths: returns the shards of a program, from folder, chip and name of the program.
        write: makes a feature shard.
        version: version of the features.
        reads_compiled: whether the features also depend on the compiled program.
        searches: returns the searches that get feature shards of their own, with the folders of these,
            from a shard; by default there is one feature shard.
    """

    paths: Callable[[Path, str, str], tuple[Path, ...]]
    write: Callable[[ShardSpec, _Program], None]
    version: int = FEATURES_VERSION
    reads_compiled: bool = True
    searches: Callable[[Path], Mapping[str, str]] = lambda _: {"": ""}


def _fusion_paths(data: Path, chip: str, name: str) -> tuple[Path, ...]:
    return tuple(part.path for part in fusion_parts(data, chip, name))


def _layout_folders(path: Path) -> dict[str, str]:
    return {search: collection_folder(name) for search, name in searches_of(path).items()}


READERS: Mapping[str, _Reader] = {
    "tile": _Reader(lambda data, chip, name: (shard_path(data, chip, name),), _write_kernels),
    "fusion": _Reader(_fusion_paths, _write_kernels),
    "layout": _Reader(
        lambda data, chip, name: (layout_shard_path(data, chip, name),),
        _write_layouts,
        version=LAYOUT_GRAPH.version,
        reads_compiled=False,
        searches=_layout_folders,
    ),
}


def _sources(data: Path, task: str, chip: str) -> dict[str, tuple[Path, ...]]:
    """Returns the shards of a task on a chip by program.

    Raises:
        DataError: if there are none.
    """
    folder = data / task / chip
    names = sorted({path.name.split(".")[0] for path in folder.glob("*.arrow") if path.name[0] != "."})
    if not names:
        raise DataError("no shards", where=folder, expected=f"{task} samples made by the stage `generate`")
    return {name: READERS[task].paths(data, chip, name) for name in names}


def _work_items(section: FeaturesParams, data: Path, folder: Path) -> list[WorkItem[ProgramItem]]:
    """Returns a work item for each program, those with the largest shards first."""
    by_program: dict[str, list[ShardSpec]] = {}
    sources_of_nodes = {nodes: part_digest(nodes, "features.nodes") for nodes in section.nodes}
    for task in section.tasks:
        for chip in section.chips:
            recorded = is_recorded(data, chip)
            if recorded and task != FUSION.name:
                continue
            target = None if recorded else load_target(chip)
            chip_name = chip if target is None else target.name
            for name, sources in _sources(data, task, chip_name).items():
                compiled_name = name_of_recorded(chip, name) if recorded else name
                compiled = (
                    [compiled_program_path(data, compiled_name)] if READERS[task].reads_compiled else []
                )
                key = f"{digest_files([*sources, *compiled], data)[:32]}/{READERS[task].version}"
                for search, below in READERS[task].searches(sources[0]).items():
                    path = feature_path(folder, task, f"{chip_name}/{below}", name)
                    architecture = None if target is None else target.architecture
                    shard_spec = ShardSpec(task, chip_name, architecture, sources, path, key, search)
                    by_program.setdefault(name, []).append(shard_spec)
                    has_estimates = READERS[task].reads_compiled and not recorded
                    for quality in section.estimates if has_estimates else ():
                        beside = estimates_path(path, quality)
                        by_program[name].append(replace(shard_spec, path=beside, estimate=quality))
                    for nodes in section.nodes if READERS[task].reads_compiled else ():
                        beside = extras_path(path, nodes)
                        by_program[name].append(
                            replace(
                                shard_spec, path=beside, key=f"{key}/{sources_of_nodes[nodes]}", nodes=nodes
                            )
                        )
    sizes = {
        name: sum(path.stat().st_size for shard_spec in several for path in shard_spec.sources)
        for name, several in by_program.items()
    }
    ordered = sorted(by_program, key=lambda name: (-sizes[name], name))
    # Without the version of Python: shards do not depend on it, and machines share them as data.
    code = closure(make_features).digest()
    items = []
    for name in ordered:
        by_entry: dict[str, list[ShardSpec]] = {}
        for shard in by_program[name]:
            label = "-".join(filter(None, (shard.chip, shard.estimate, shard.nodes.replace(":", "-"))))
            by_entry.setdefault(label, []).append(shard)
        shards = tuple(
            (_entry(folder, Path("notes", label, name), several, code), tuple(several))
            for label, several in by_entry.items()
        )
        entry = _entry(folder, Path("programs", name), by_program[name], code)
        parts = tuple(part for part, _ in shards)
        items.append(WorkItem(name, ProgramItem(data, name, shards), entry, parts))
    return items


def _entry(folder: Path, note: Path, shards: Sequence[ShardSpec], code: str) -> Entry:
    """Returns where the store keeps shards; `note` is the path of its note in the folder, less `.json`."""
    key = key_of(code, *(f"{shard.path.relative_to(folder)} {shard.key}" for shard in shards))
    return Entry(folder / f"{note}.json", key, tuple(shard.path for shard in shards))
