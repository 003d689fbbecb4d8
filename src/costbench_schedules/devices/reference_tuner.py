"""Runs TVM's own tuner, MetaSchedule, in a process of its own and returns what it measured.

It is a process of its own because TVM's tuner looks up the caller of each of its tensor intrinsics among all
loaded modules: minutes, where torch is loaded or the intrinsics of other processors are.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

from costbench.artifacts import read_json, write_json
from costbench.errors import DataError
from costbench.params import parse
from costbench_schedules.devices.process import require_tvm
from costbench_schedules.operators.operators import Operator, parse_operator

_RESULT, _SAID = "found.json", "said.txt"
_ELSEWHERE = ("arm_cpu", "cuda", "hexagon", "riscv_cpu", "rocm")
"""Processors whose intrinsics x86 does not need."""


@dataclass(frozen=True)
class ReferenceTrial:
    """A measurement that MetaSchedule asked for.

    Attributes:
        runtime_ns: runtime in ns; None where it failed.
        reason: reason of the failure, or empty.
        program: path of the program, for `CpuDevice.measure_program`.
    """

    runtime_ns: int | None
    reason: str
    program: str


@dataclass(frozen=True)
class ReferenceTrials:
    """What MetaSchedule found.

    Attributes:
        trials: trials in order.
    """

    trials: tuple[ReferenceTrial, ...]

    def fastest(self, count: int) -> tuple[ReferenceTrial, ...]:
        """Returns the fastest trials that ran, at most `count`, the fastest first."""
        ran = [(trial.runtime_ns, index) for index, trial in enumerate(self.trials) if trial.runtime_ns]
        return tuple(self.trials[index] for _, index in sorted(ran)[:count])


@dataclass(frozen=True)
class ReferenceSpec:
    """Settings of a search.

    Attributes:
        trials: number of measurements.
        seed: seed of MetaSchedule's random numbers.
        target: target that is built for, see `CpuDevice`.
    """

    trials: int
    seed: int = 0
    target: str = "native"


Search = Callable[[Operator, ReferenceSpec, Path], ReferenceTrials]


def meta_schedule(operator: Operator, spec: ReferenceSpec, folder: Path) -> ReferenceTrials:
    """Returns what MetaSchedule finds, each of its schedules measured as `CpuDevice` measures ours.

    Args:
        operator: operator, the same program as ours before scheduling.
        spec: settings of the search.
        folder: folder of its data base, its programs and what it prints.

    Raises:
        DataError: without the extra `cpu`, or if it ends without a result, with its last line.
    """
    require_tvm()
    folder.mkdir(parents=True, exist_ok=True)
    request = json.dumps({"operator": operator.text, "folder": str(folder), **asdict(spec)})
    environment = dict(os.environ) | {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with (folder / _SAID).open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-m", "costbench_schedules.devices.reference_tuner", request],
            stdout=output,
            stderr=output,
            env=environment,
            check=False,
        )
    if done.returncode:
        lines = (folder / _SAID).read_text(encoding="utf-8", errors="replace").strip().splitlines()
        problem = f"MetaSchedule ended: {lines[-1] if lines else f'exit code {done.returncode}'}"
        raise DataError(problem, where=folder / _SAID)
    return parse(ReferenceTrials, read_json(folder / _RESULT), where=folder / _RESULT)


class _NoTorch:
    """Finds no torch, so that TVM does without it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Returns nothing for other modules. Raises: ImportError for torch."""
        if name == "torch":
            raise ImportError("torch is kept out of this process", name=name)


def _light() -> None:
    """Keeps this process from loading what makes TVM's intrinsics slow to import."""
    sys.meta_path.insert(0, _NoTorch())
    if platform.machine() in ("x86_64", "AMD64"):
        for name in _ELSEWHERE:
            full = f"tvm.s_tir.tensor_intrin.{name}"
            sys.modules[full] = ModuleType(full)


def main(request: str, search: Search) -> None:
    """Searches as a request says, and writes the result into its folder."""
    settings = json.loads(request)
    folder = Path(settings["folder"])
    spec = ReferenceSpec(settings["trials"], settings["seed"], settings["target"])
    trials = search(parse_operator(settings["operator"]), spec, folder)
    write_json(folder / _RESULT, asdict(trials))


if __name__ == "__main__":
    _light()
    from costbench_schedules.devices.meta_schedule import search_by_meta_schedule

    main(sys.argv[1], search_by_meta_schedule)
