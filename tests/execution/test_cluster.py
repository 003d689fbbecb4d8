"""Which workers of a cluster are refused, and why."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.errors import DataError, ParamsError
from costbench.execution import cluster
from costbench.execution.cluster import Requirements, code_of, connect
from costbench.execution.dotted import load_dotted
from costbench.execution.workers import Backend, run_work_items

MODULE = "costbench.hlo.reader"
HERE = Requirements(MODULE, code_of(MODULE), platform.python_version().rpartition(".")[0], None)


def other(**changes: Mapping[str, str]) -> Requirements:
    """Requirements of a process with other modules, data or libraries."""
    return replace(HERE, code=replace(HERE.code, **changes))


def test_a_worker_like_this_process_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    HERE.check(1)
    replace(HERE, mark=tmp_path / "mark").check(1)


def test_the_code_of_a_function_is_that_of_its_module() -> None:
    assert {MODULE, "costbench.hlo.module"} <= code_of(MODULE).modules.keys()
    assert "protobuf" in code_of(MODULE).libraries
    # For a function of another package, such as a test's, the code that runs work items.
    assert "costbench.execution.cluster" in code_of("tests.execution.test_cluster").modules


@pytest.mark.parametrize(
    ("requirements", "threads", "message"),
    [
        (HERE, 4, "has 4 threads .expected `dask worker --nthreads 1`"),
        (
            other(modules={**HERE.code.modules, MODULE: "0"}),
            1,
            rf"runs other code: {MODULE} .expected the same commit",
        ),
        (other(modules={}), 1, f"runs other code: {', '.join(list(HERE.code.modules)[:3])} "),
        (other(libraries={**HERE.code.libraries, "protobuf": "1.0"}), 1, r"protobuf \d.* in place of 1\.0"),
        (other(libraries={**HERE.code.libraries, "absent": "1.0"}), 1, r"absent missing in place of 1\.0"),
        (replace(HERE, python="2.7"), 1, r"Python 3\.\d+ in place of 2\.7"),
        (replace(HERE, mark=Path("/nowhere/out/mark")), 1, "does not see /nowhere/out"),
    ],
)
def test_another_worker_is_refused_by_name(requirements: Requirements, threads: int, message: str) -> None:
    with pytest.raises(ParamsError, match=f"worker on {socket.gethostname()}: .*{message}"):
        requirements.check(threads)


def _same(value: str) -> str:
    return value


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("tcp://127.0.0.1", "missing port"),
        ("{folder}/none.json", "no such file"),
        ("{folder}/other.json", "names no address"),
    ],
)
def test_an_address_that_is_none_is_one_error(scheduler: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs the extra `scale`")
    (tmp_path / "other.json").write_text("[]")
    backend = Backend("dask", scheduler=scheduler.format(folder=tmp_path))
    with pytest.raises((ParamsError, DataError), match=message):
        run_work_items(_same, {"a": "here"}, backend, lambda key, result: None)


def test_another_server_on_that_port_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and does not answer, as a web server does."""
    pytest.importorskip("distributed", reason="needs the extra `scale`")
    monkeypatch.setattr(cluster, "_CONNECT_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        backend = Backend("dask", scheduler=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ParamsError, match="no Dask scheduler answers"):
            run_work_items(_same, {"a": "here"}, backend, lambda key, result: None)


def test_a_worker_that_has_loaded_an_older_module_of_a_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra `scale`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_own_modules", {})
    # Modules of other tests in this process, whose files may be gone, count as they are now.
    cluster._note_own_modules(since=0.0)
    noted = {name: (path, cluster._digest_of(path)) for name, (path, _) in cluster._own_modules.items()}
    monkeypatch.setattr(cluster, "_own_modules", noted)
    module = tmp_path / "edited_since.py"
    module.write_text("VALUE = 1\n")
    here = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**here) as local, connect(local.scheduler_address, None) as workers:
        for _ in range(2):
            assert list(workers.results(load_dotted, {"a": "edited_since:VALUE"})) == [("a", 1)]
        module.write_text("VALUE = 2\n")
        with pytest.raises(ParamsError, match="runs other code: edited_since "):
            list(workers.results(load_dotted, {"a": "edited_since:VALUE"}))
