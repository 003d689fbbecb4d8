"""What every test shares: quiet, single-threaded libraries, and where the real data lies."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator
from functools import cache
from pathlib import Path

# Before any import that reads them. Two OpenMP teams on the same cores spin against each other.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "GOMP_SPINCOUNT": "0",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MPLBACKEND": "Agg",
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
}.items():
    os.environ.setdefault(_name, _value)

# On a disk each transaction and each file that is replaced waits for the disk, which is most of some tests.
_MEMORY, _ENOUGH = Path("/dev/shm"), 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

import pytest  # noqa: E402
import typer.testing  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.fast import MARKS, is_fast  # noqa: E402

# The same examples in every run, so that a red test is red for everybody; HYPOTHESIS_PROFILE=search
# looks for new ones. No deadline: cores are shared.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", deadline=None, database=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Typer makes the whole command line anew for each command that a test runs, a twentieth of a second.
_make_command = typer.testing._get_command


@cache
def _known_command(app: typer.Typer, *_registered: int) -> object:
    return _make_command(app)


# Other packages add their commands to the same application when it is first run whole.
typer.testing._get_command = lambda app: _known_command(
    app, len(app.registered_commands), len(app.registered_groups)
)

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--fast`; see `tests.fast`."""
    parser.addoption("--fast", action="store_true", help="only tests that import and run nothing slow")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves slow test files out before they are imported, if `--fast` is given."""
    if config.getoption("--fast") and collection_path.match("test_*.py") and not is_fast(collection_path):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports all tests without looking for garbage, and leaves what they imported out of later searches.

    That is two gigabytes of libraries, which each full search would visit, tens of times in a session.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first: a broken function shows before a pipeline has run.

    Two parallel workers each start with half of the list. The first takes the pipelines, which last minutes
    each and, taken last, would run alone. The second takes tests that compile nothing: what both need is
    compiled once, by the pipelines, and not by both at the same time.
    """
    if config.getoption("--fast"):
        items[:] = [item for item in items if not any(item.get_closest_marker(mark) for mark in MARKS)]
    cost = {"slow": 1, "pipeline": 2}

    def cost_of(item: pytest.Item) -> int:
        return max((cost.get(mark.name, 0) for mark in item.iter_markers()), default=0)

    def reads_smoke(item: pytest.Item) -> bool:
        # Of the pipelines the smoke profile is the first: what it compiles others would compile beside it.
        return "smoke" in getattr(item, "fixturenames", ())

    items.sort(key=lambda item: (cost_of(item), reads_smoke(item)), reverse=hasattr(config, "workerinput"))
    if hasattr(config, "workerinput"):
        compiles_nothing = cache(is_fast)
        fast = [item for item in items if cost_of(item) == 0 and compiles_nothing(item.path)]
        others = [item for item in items if cost_of(item) > 0 or not compiles_nothing(item.path)]
        first = len(items) // 2
        items[:] = [*others[:first], *fast, *others[first:]]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository. Tests read here and write under `tmp_path`."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real TPU data, which is not part of the repository.

    `COSTBENCH_SHARED_DATA`, or `../shared/data` beside the repository; without either the test is
    skipped.
    """
    named = os.environ.get("COSTBENCH_SHARED_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real TPU data in {folder}: set COSTBENCH_SHARED_DATA to its folder")
    return folder
