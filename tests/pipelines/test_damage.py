"""One changed bit, in any file that stages and commands read, ends in a line that names it, or is not read.

The time of the file stays as it was. COSTBENCH_FLIPS says how many bits of all kinds of files are changed.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

from costbench.artifacts import CHECKSUMS_FILE, check_sealed, read_bytes, read_json
from costbench.datasets.splits import read_split
from costbench.datasets.storage import Shard
from costbench.errors import CostbenchError
from costbench.experiments.identity import read_identity
from costbench.experiments.sweeps.best import read_best
from costbench.features.feature_shards import FeatureShard
from costbench.hlo.reader import read_module
from costbench.metrics.overhead import read_overheads
from costbench.metrics.rows import read_rows
from costbench.models.checkpoint import load_checkpoint
from costbench.models.layout.model import load_layout_model
from costbench.params import load_yaml
from costbench.programs.manifest import load_manifest, read_program_bytes
from costbench.rng import stream
from costbench_schedules.records.programs import read_estimated, read_programs
from costbench_schedules.records.table import read_table
from tests.pipelines.stage_flips import (
    MADE_AGAIN,
    PASSED_OVER,
    REFUSED,
    attempt,
    draw,
    flip,
    kinds_of_files,
    run_stage,
)

pytestmark = [
    pytest.mark.pipeline,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
]
FLIPS = int(os.environ.get("COSTBENCH_FLIPS", "500"))


def _program(path: Path) -> None:
    (entry,) = (entry for entry in load_manifest(path.parent) if entry.file == path.name)
    read_program_bytes(path.parent, entry)


def _model(path: Path) -> None:
    is_layout = (path.parent / "layout_model.json").exists()
    (load_layout_model if is_layout else load_checkpoint)(path.parent)


OUT: Mapping[str, Callable[[Path], object]] = {
    "generate/*/*/*.arrow": Shard.open,
    "generate/programs/*.zst": read_module,
    "generate/*/*/*.json": read_json,
    "generate/summary.json": read_json,
    "*/identity.json": lambda path: read_identity(path.parent),
    "split/random.json": read_split,
    "split/card.json": read_json,
    "features/tile/*/*.arrow": FeatureShard,
    "features/fusion/*/*.arrow": FeatureShard,
    "features/layout/**/*.arrow": Shard.open,
    "features/programs/*.json": read_json,
    "sweep/*.yaml": read_best,
    "sweep/*.csv": read_bytes,
    "train/*/*/*model.json": _model,
    "train/*/*/weights.pt": _model,
    "train/*/*/history.csv": read_bytes,
    "train/*/*/done.json": read_json,
    "evaluate/*/rows.jsonl": read_rows,
    "evaluate/*/scatter.json": read_json,
    "evaluate/*/*/*.json": read_json,
    "machine/evaluate/*/*.json": lambda path: read_overheads([path.parent]),
    "machine/train/*/*.json": read_json,
    "machine/*.json": read_json,
    "reports/*.json": read_json,
    "reports/tables/*.csv": read_bytes,
    "autotune/rows.jsonl": read_rows,
    "autotune/search.json": read_json,
    "autotune/*/*.json": read_json,
    "register/champions.json": read_json,
    "register/*/*model.json": _model,
    "register/*/weights.pt": _model,
    f"**/{CHECKSUMS_FILE}": lambda path: check_sealed(path.parent / "x"),
}
DATA: Mapping[str, Callable[[Path], object]] = {
    "programs/*.zst": _program,
    "programs/manifest.json": lambda path: load_manifest(path.parent),
    "schedules/*/C*.arrow": read_table,
    "schedules/estimates/programs.arrow": read_estimated,
    "schedules/*.json": read_json,
    "networks/programs.arrow": read_estimated,
    "networks/sampled.arrow": read_programs,
    "networks/card.json": read_json,
    f"**/{CHECKSUMS_FILE}": lambda path: check_sealed(path.parent / "x"),
}
"""By kind of file, as a stage or a command reads it."""


def test_no_changed_bit_is_believed(workplace: Path) -> None:
    kinds = [
        (sorted(folder.glob(pattern)), read)
        for folder, readers in ((workplace / "out" / "smoke", OUT), (workplace / "data", DATA))
        for pattern, read in readers.items()
    ]
    random = stream(0, "flips")
    for number in range(FLIPS):
        paths, read = kinds[number % len(kinds)]
        path = paths[int(random.integers(len(paths)))]
        bit = int(random.integers(8 * path.stat().st_size))
        flip(path, bit)
        with pytest.raises(CostbenchError, match=r": damaged \(expected .*made again by .*") as raised:
            read(path)
        assert "\n" not in str(raised.value)
        assert path.name in str(raised.value)
        flip(path, bit)
        if number < len(kinds):
            read(path)


def test_all_results_are_sealed(smoke: Path) -> None:
    """But notes for DVC, pages for people, the frame for notebooks, and a database that is in use."""
    out = smoke / "out" / "smoke"
    sealed = {
        listing.parent / name
        for listing in out.rglob(CHECKSUMS_FILE)
        for name in re.findall(r"^[0-9a-f]{64}  (.+)$", listing.read_text(), re.MULTILINE)
    }
    others = {
        path.relative_to(out).as_posix()
        for path in out.rglob("*")
        if path.is_file() and path not in sealed and path.name != CHECKSUMS_FILE
    }
    others = {name for name in others if name.split("/")[0] != "inputs" and not name.endswith(".md")}
    assert others == {"optuna.db", "results.parquet"}
    assert load_yaml(out / "sweep" / "tile.yaml")


def test_each_page_of_the_frame_has_a_checksum(smoke: Path, tmp_path: Path) -> None:
    whole = (smoke / "out" / "smoke" / "results.parquet").read_bytes()
    (length_of_footer,) = struct.unpack("<I", whole[-8:-4])
    path, random = tmp_path / "results.parquet", stream(0, "flips of the frame")
    path.write_bytes(whole)
    expected, num_refused = pd.read_parquet(path), 0
    for bit in random.integers(8 * (len(whole) - 8 - length_of_footer), size=40).tolist():
        flip(path, bit)
        try:
            assert pd.read_parquet(path, page_checksum_verification=True).equals(expected)
        except OSError:
            num_refused += 1
        flip(path, bit)
    assert num_refused > 30


@pytest.fixture
def current_workplace(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workplace that is the current folder, whose stages run in this process."""
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace / 'mlflow.db'}")
    return workplace


def test_stages_refuse_what_they_read_and_their_own_results_they_make_again(current_workplace: Path) -> None:
    out, name = Path("out/smoke"), "convdraw_b16_infer_f32"
    refused = [
        (Path(f"data/programs/{name}.hlo.pb.zst"), "generate", "costbench collect"),
        (out / f"generate/tile/tpu_v2/{name}.arrow", "split", "costbench generate"),
        (out / f"generate/tile/tpu_v2/{name}.arrow", "features", "costbench generate"),
    ]
    for path, stage, command in refused:
        flip(path, 4 * path.stat().st_size)
        with pytest.raises(CostbenchError, match=f"{re.escape(str(path))}: damaged.*{command}"):
            run_stage(stage, path)
        flip(path, 4 * path.stat().st_size)
    (fusion, *_) = sorted((out / "generate" / "fusion" / "tpu_v2").glob("*.arrow"))
    made_again = [
        (fusion, "generate"),
        (out / f"generate/tile/tpu_v2/{name}.json", "generate"),
        (out / "generate" / CHECKSUMS_FILE, "generate"),
        (out / "split/random.json", "split"),
    ]
    for path, stage in made_again:
        whole = path.read_bytes()
        flip(path, 4 * path.stat().st_size)
        run_stage(stage, path)
        assert path.read_bytes() == whole


def test_stages_believe_no_changed_bit_of_any_kind_of_file(smoke: Path, current_workplace: Path) -> None:
    """One of each kind that a stage of a second reads; `python -m tests.pipelines.stage_flips` tries more."""
    quick = ("inputs", "generate", "split", "features", "train", "evaluate", "autotune", "register")
    num_kinds = len(kinds_of_files(quick))
    ends = Counter(attempt(path, bit, stage, smoke) for path, bit, stage in draw(num_kinds, 1, quick))
    assert ends.total() == num_kinds > 25
    assert min(ends[end] for end in (REFUSED, MADE_AGAIN, PASSED_OVER)) > 1
