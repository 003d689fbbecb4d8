"""Builds profiles as `jax.profiler.trace` writes them on a TPU, a GPU or a CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from costbench.datasets.profiles.proto import xplane_pb2
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from tests.hlo.builder import ComputationBuilder, ModuleBuilder

PS_PER_NS = 1000
Span = tuple[str, int, int]
"""Name of an event, its start and its duration in ns."""


class PlaneBuilder:
    """A plane whose names are numbered as they come."""

    def __init__(self, space: xplane_pb2.XSpace, name: str, **stats: str | int) -> None:
        self.plane = space.planes.add(name=name)
        self._stats: dict[str, int] = {}
        self._events: dict[tuple[str, tuple[tuple[str, str | int], ...]], int] = {}
        self._set(self.plane.stats, stats)

    def line(
        self, name: str, events: Iterable[Span], start_ns: int = 0, **stats: Mapping[str, str | int]
    ) -> None:
        """Adds a line; `stats` are those of events by their names, with `_` for signs."""
        line = self.plane.lines.add(name=name, timestamp_ns=start_ns)
        for event, offset_ns, duration_ns in events:
            added = line.events.add(
                metadata_id=self.event(event),
                offset_ps=offset_ns * PS_PER_NS,
                duration_ps=duration_ns * PS_PER_NS,
            )
            self._set(added.stats, stats.get(event.replace(".", "_"), {}))

    def event(self, name: str, display: str = "", **stats: str | int | bytes) -> int:
        """Returns the number of a kind of event, made when it is new."""
        for number, metadata in self.plane.event_metadata.items():
            if metadata.name == name:
                return number
        number = len(self.plane.event_metadata) + 1
        metadata = self.plane.event_metadata[number]
        metadata.id, metadata.name, metadata.display_name = number, name, display
        self._set(metadata.stats, stats)
        return number

    def _set(self, target: object, stats: Mapping[str, str | int | bytes]) -> None:
        for name, value in stats.items():
            number = self._stats.setdefault(name, len(self._stats) + 1)
            self.plane.stat_metadata[number].name = name
            stat = target.add(metadata_id=number)  # type: ignore[attr-defined]
            if isinstance(value, bytes):
                stat.bytes_value = value
            elif isinstance(value, int):
                stat.uint64_value = value
            else:
                # Profilers store repeated texts once, as names of further statistics.
                reference = self._stats.setdefault(value, len(self._stats) + 1)
                self.plane.stat_metadata[reference].name = value
                stat.ref_value = reference


def layer() -> HloModule:
    """A dot, and a fusion of three instructions that reads it."""

    def gate(c: ComputationBuilder) -> int:
        x = c.parameter("f32[256,512]")
        return c.op("multiply", c.op("tanh", x), c.op("exponential", x))

    b = ModuleBuilder("jit_layer")
    h = b.dot(b.parameter("f32[256,384]"), b.parameter("f32[384,512]"))
    return b.build(b.fusion(gate, h))


def operation_names(module: HloModule) -> tuple[str, str]:
    """Names of the dot and the fusion of `layer`."""
    dot, fusion = module.entry_computation.instructions[-2:]
    return dot.name, fusion.name


def add_modules(space: xplane_pb2.XSpace, modules: Mapping[str, HloModule]) -> None:
    """Adds the plane of compiled modules."""
    tables = PlaneBuilder(space, "/host:metadata")
    for name, module in modules.items():
        tables.event(name, **{"Hlo Proto": module_to_bytes(module)})


def write(space: xplane_pb2.XSpace, folder: Path, host: str = "host") -> Path:
    """Writes a profile where the profiler does."""
    path = folder / "plugins" / "profile" / "2026_01_01_00_00_00" / f"{host}.xplane.pb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(space.SerializeToString())
    return path


def tpu_profile(folder: Path) -> Path:
    """Two runs of `layer` on two cores of a TPU: the dot takes 40, 42, 41, 45 us, the fusion 9, 8, 8, 10 us.

    Events carry the instruction as text; the line of programs says when which ran.
    """
    module = layer()
    dot, fusion = operation_names(module)
    space = xplane_pb2.XSpace()
    add_modules(space, {"jit_layer(77)": module})
    times = {0: ((40, 9), (42, 8)), 1: ((41, 8), (45, 10))}
    for core, runs in times.items():
        plane = PlaneBuilder(space, f"/device:TPU:{core}", device_type_string="TPU v3")
        for name in (dot, fusion):
            plane.event(f"%{name} = f32[256,512]{{1,0}} {name}(...)", display=name)
        programs, operations = [], []
        for number, (dot_us, fusion_us) in enumerate(runs):
            start = 1_000_000 * number
            programs.append(("jit_layer(77)", start, 100_000))
            operations.append((f"%{dot} = f32[256,512]{{1,0}} {dot}(...)", start + 1_000, 1_000 * dot_us))
            begin = start + 60_000
            operations.append((f"%{fusion} = f32[256,512]{{1,0}} {fusion}(...)", begin, 1_000 * fusion_us))
        plane.line("XLA Modules", programs, start_ns=500)
        plane.line("XLA Ops", operations, start_ns=500)
        plane.line("Steps", [("0", 0, 2_000_000)])
    return write(space, folder)
