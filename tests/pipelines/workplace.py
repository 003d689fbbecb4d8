"""A copy of the repository in which stages can run, and a profile that is over in seconds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_files
from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import inputs
from costbench.params import merge
from tests.deadline import HANGS_AFTER_S

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = ("generate", "split", "features", "sweep", "train", "evaluate", "autotune")
"""Those that compute; what comes after them works in its own process wherever these do."""
PROGRAMS = (
    "convdraw_b16_infer_f32",
    "mobilenet_b32_infer_f32",
    "ranking_b16_infer_f32",
    "rnn_char_b64_infer_f32",
    "vgg19_b64_infer_f32",
    "wavernn_3_b1_infer_bf16",
)
OWN_MODEL = "examples.my_cost_model:LargestTile"
"""A model of a user's own, which lies in the workplace."""
Changes = Mapping[str, Mapping[str, object]]
# Deep enough to exercise everything, small enough for seconds.
TINY: Changes = {
    # One process: starting workers, each importing torch, would take longer than their work.
    "run": {"jobs": 1},
    "generate": {
        "programs": list(PROGRAMS),
        "tile": {"max_tiles_per_kernel": 12, "max_kernels_per_program": 5, "seed": 0},
    },
    "split": {
        "random": {"seed": 0, "num_validation": 1, "num_test": 2, "test_applications": ["RNN"]},
        "manual": {
            "seed": 0,
            "num_validation": 1,
            "test_programs": ["ranking_b16_infer_f32"],
            "held_out_applications": ["Ranking"],
            "dropped": [],
        },
        "folds": {"num_validation": 1},
    },
    "sweep": {
        "trials": 2,
        "startup_trials": 1,
        "model": {
            "tile": {
                "net": {"hidden": 32},
                "batch": {"kernels": 4, "configs": 8, "per_epoch": 4},
                "validation": {"kernels": 4, "configs": 8},
                "epochs": 2,
            },
            "fusion": {
                "net": {"hidden": 32},
                "batch": {"kernels": 8, "per_epoch": 4},
                "validation": {"kernels": 8},
                "epochs": 2,
            },
        },
    },
    "train": {
        "tile": {
            "net": {"hidden": 8, "opcode_embedding": 4, "encoder_layers": 1},
            "batch": {"kernels": 4, "configs": 8, "per_epoch": 6},
            "validation": {"kernels": 4, "configs": 8},
            "epochs": 2,
        },
        "fusion": {
            "net": {"hidden": 8, "opcode_embedding": 4, "encoder_layers": 1},
            "batch": {"kernels": 16, "per_epoch": 6},
            "validation": {"kernels": 16},
            "epochs": 2,
        },
    },
    "autotune": {
        "tile": {"search": {"top_k": [1, 10], "max_tiles_per_kernel": 20}},
        "fusion": {
            "programs": {"max_programs": 1},
            "search": {"hardware_minutes": [1, 2], "best_known_minutes": 5, "model_minutes": 0.002},
        },
    },
}


EXPERIMENTS = {
    "main-tile": (), "main-fusion": (), "hybrid-tile": (), "hybrid-fusion": (), "tuned-tile": (),
    "folds-fusion": (), "ablations-tile": ("vanilla", "mse"), "tpugraphs-layout": (),
}  # fmt: skip
"""Those of the smoke profile that show what stages do together, and which of their variants; () for all."""


def make_workplace(folder: Path) -> Path:
    """Copy what a run needs, with git and the smoke profile made tiny; the folder."""
    for name in (
        "src",
        "pipelines",
        "data/programs",
        "data/gpu_tuning",
        "data/networks",
        "data/results/gpu_tuning",
        "data/results/schedules",
        "data/schedules",
        "examples",
    ):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "user")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    files = ("dvc.yaml", "data/dvc.yaml", "data/dvc.lock", "profiles/smoke/dvc.yaml", "params.yaml")
    for name in (*files, ".dvc/config", ".dvcignore", ".gitignore"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    write_profile(folder, "smoke", TINY)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    uncompressed = ["-c", "core.compression=0"]
    for arguments in (["init", "-q"], [*uncompressed, "add", "."], [*identity, "commit", "-qm", "workplace"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def write_profile(
    folder: Path, name: str, changes: Changes, experiments: Mapping[str, Sequence[str]] = EXPERIMENTS
) -> Path:
    """A copy of the smoke profile called `name`, with `changes` and these experiments; its file."""
    sections: Any = load_sections(REPOSITORY / "profiles" / "smoke" / "params.yaml")
    path = Path("profiles") / name / "params.yaml"
    out = f"out/{name}"
    sections["run"] |= {"name": name, "params": str(path), "out": out, "reports": f"{out}/reports"}
    sections["evaluate"]["models"].append(OWN_MODEL)
    sections["experiments"] = {one: sections["experiments"][one] for one in experiments}
    for one, variants in experiments.items():
        entry = sections["experiments"][one]
        entry["variants"] = {name: entry["variants"][name] for name in variants or entry["variants"]}
    for section, values in changes.items():
        sections[section] = merge(sections[section], values)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(json.dumps(sections))
    return path


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Stages find this Python first, and a tracking database of their own.

    The package is the repository's, equal to the copy, so that machine code is not compiled again for each.
    """
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY / "src"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        **more,
    }


def call(folder: Path, command: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a workplace."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )


def stages_run(output: str) -> list[str]:
    """Stages that `dvc repro` ran or would run, in order, by what it printed."""
    return re.findall(r"Running stage '(?:[^':]*:)?([^']+)'", output)


def would_run(folder: Path) -> list[str]:
    """Stages of the smoke profile that are out of date, in order, once their inputs are noted."""
    with chdir(folder):
        inputs.run(Path("profiles/smoke/params.yaml"))
    done = call(folder, ["dvc", "repro", "--dry", "profiles/smoke/dvc.yaml"])
    assert done.returncode == 0, done.stderr
    first, *others = stages_run(done.stdout)
    assert first == "inputs"
    return others


def call_stage(folder: Path, stage: str, params: Path) -> subprocess.CompletedProcess[str]:
    """Run the script of a stage."""
    return call(folder, [sys.executable, f"pipelines/{stage}.py", "--params", params])


def stage_module(stage: str) -> str:
    """The module that has the function `run` of a stage."""
    elsewhere = {"report": "costbench.reports.stage", "schedules": "costbench_schedules.stage"}
    return elsewhere.get(stage, f"costbench.experiments.stages.{stage}")


def call_stages(
    folder: Path, params: Path, stages: Sequence[str] = STAGES, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run stages, `train:main-tile` for one of an experiment, in one process, which imports torch once.

    As their scripts do, `train` and `evaluate` look into the archive that the environment names.
    """
    lines = ["from importlib import import_module", "from pathlib import Path"]
    lines.append("from costbench.experiments.packed_cells import packed_cells")
    for stage in stages:
        name, _, experiment = stage.partition(":")
        arguments = [f"Path({str(params)!r})", *([repr(experiment)] if experiment else [])]
        arguments += ["open_results=packed_cells()"] if name in ("train", "evaluate") else []
        lines.append(f"import_module({stage_module(name)!r}).run({', '.join(arguments)})")
    return call(folder, [sys.executable, "-c", "\n".join(lines)], **more)


def digest_folder(folder: Path) -> str:
    """One digest over names and contents of all files below a folder."""
    return digest_files([path for path in folder.rglob("*") if path.is_file()], folder)
