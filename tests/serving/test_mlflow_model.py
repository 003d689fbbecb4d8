"""`mlflow models serve` over a real socket: a champion answers as its checkpoint does, and says what
is wrong. One server for all questions, since starting one takes seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from costbench.experiments.grid.cells import Cell
from costbench.experiments.tracking.queries import CellFilter
from costbench.hlo.conversion import module_to_bytes
from costbench.serving.service import load_service
from tests.deadline import HANGS_AFTER_S
from tests.experiments.conftest import tracking_store, tracking_template
from tests.experiments.finished_cells import finish_cell, register_best, track_cell
from tests.serving.test_service import FAR, GOOD, TEXT, dense, encoded

__all__ = ["tracking_store", "tracking_template"]

pytestmark = [
    pytest.mark.slow,
    # MLflow's own use of SQLAlchemy, and what it says of its own type hints.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]


@pytest.fixture
def checkpoint(tracking_store: str, tmp_path: Path) -> Path:
    """Of the champion of the task `tile` in the test's store."""
    folder = finish_cell(tmp_path / "cell", "tile", "key", 0.5)
    track_cell(tracking_store, Cell("tile", "random", "tpu_v2", "main", 0), folder, "key", 0.5)
    assert register_best(tracking_store, CellFilter("tile")) is not None
    return folder


@pytest.fixture
def port(checkpoint: Path, tracking_store: str) -> Iterator[int]:
    """Of a server of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    # What serves is looked up on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = str(Path(__file__).resolve().parents[2] / "src")
    command = [
        *(sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/costbench-tile-p@champion"),
        *("--env-manager", "local", "-p", str(number), "-w", "1"),
    ]
    environment = os.environ | {"MLFLOW_TRACKING_URI": tracking_store, "PATH": path, "PYTHONPATH": source}
    environment["SERVING_MODEL_CONFIG"] = json.dumps({"limits": {**asdict(FAR), "tiles": 50}})
    with (checkpoint.parent / "server.log").open("w+") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + HANGS_AFTER_S
            while not _answers(number):
                assert server.poll() is None, (log.seek(0), log.read())
                assert time.monotonic() < deadline, (log.seek(0), log.read())
                time.sleep(0.1)
            yield number
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def _answers(port: int) -> bool:
    try:
        return _call(port, "GET", "/ping")[0] == 200
    except OSError:
        return False


def _call(port: int, method: str, place: str, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_AFTER_S)
    headers = {"Content-Type": "application/json"}
    connection.request(method, place, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def _post(port: int, **row: object) -> tuple[int, Any]:
    status, text = _call(port, "POST", "/invocations", {"dataframe_records": [row]})
    assert "Traceback" not in text
    return status, json.loads(text)


def test_it_answers_over_a_socket(port: int, checkpoint: Path) -> None:
    service = load_service(checkpoint, "tile", "tpu_v2", FAR)
    tiles = [GOOD, {"output_bounds": [16, 1], "kernel_bounds": [64, 1]}]
    rows = [
        {"kernel": TEXT, "tiles": tiles},
        {"kernel": encoded(module_to_bytes(dense())), "tiles": tiles, "chip": "tpu_v2"},
    ]
    for row in rows:
        (expected,) = service.answer([row])
        assert _post(port, **row) == (200, {"predictions": [expected]})
    assert len(set(expected["costs"])) == 2

    status, text = _call(port, "POST", "/invocations", {"dataframe_records": rows[:1] * 3})
    assert (status, len(json.loads(text)["predictions"])) == (200, 3)

    good: dict[str, object] = {"kernel": TEXT, "tiles": tiles}
    wrong: list[tuple[dict[str, object], str]] = [
        ({"kernel": "no base64!"}, "request 0.kernel: 'no base64!' is no base64"),
        ({"kernel": rows[1]["kernel"][:80]}, "truncated or no HLO module"),
        ({"kernel": "HloModule m"}, "no entry computation"),
        ({"tiles": [{"output_bounds": [1, 2, 3], "kernel_bounds": [64, 2]}]}, "3 numbers (expected 2"),
        (
            {"tiles": [{"output_bounds": [float("nan"), 2], "kernel_bounds": [64, 2]}]},
            "nan (expected a whole",
        ),
        ({"tiles": []}, "tiles: is []"),
        ({"tiles": tiles * 26}, "tiles: 52 tile sizes (expected at most 50)"),
        ({"chip": "tpu_v9"}, "request 0.chip: is 'tpu_v9' (expected tpu_v2"),
    ]
    for change, message in wrong:
        status, answer = _post(port, **{**good, **change})
        assert (status, message in answer["message"]) == (400, True), answer
    assert _call(port, "POST", "/invocations", {"dataframe_records": [{"kernel": TEXT}]})[0] == 400
    assert _post(port, **rows[0])[0] == 200
