"""Databases that can hold studies, and one line for those that cannot."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from costbench.errors import CostbenchError
from costbench.experiments.sweeps.study import ENVIRONMENT, StorageSpec, open_storage, storage_url


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert storage_url(None, tmp_path) == f"sqlite:///{tmp_path}/optuna.db"
    monkeypatch.setenv(ENVIRONMENT, "sqlite:///theirs.db")
    assert storage_url(None, tmp_path) == "sqlite:///theirs.db"
    assert storage_url("sqlite:///mine.db", tmp_path) == "sqlite:///mine.db"


def test_folders_and_tables_are_created_once(tmp_path: Path) -> None:
    spec = StorageSpec(f"sqlite:///{tmp_path}/new/folder/optuna.db", heartbeat_s=7)
    assert open_storage(spec).get_all_studies() == []
    again = open_storage(spec)
    assert again.get_all_studies() == []
    assert (again.heartbeat_interval, again.grace_period) == (7, 21)


def test_passwords_stay_out_of_messages() -> None:
    spec = StorageSpec("postgresql+psycopg://me:secret@127.0.0.1:1/costbench")
    assert "secret" not in spec.name
    assert spec.name.startswith("postgresql+psycopg://me:***@127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("optuna.db", "storage: no URL of a database (expected such as sqlite:////"),
        ("redis://127.0.0.1/0", "storage: no URL of a database"),
        ("oracle+nodriver://127.0.0.1/x", "storage: no URL of a database"),
        ("mysql+pymysql://127.0.0.1/x", "storage: no URL of a database"),
        ("postgresql+pg8000://127.0.0.1/x", "the driver pg8000 is not installed"),
        ("sqlite:////dev/null/optuna.db", "/dev/null"),
    ],
)
def test_storages_that_cannot_be_used(url: str, message: str) -> None:
    with pytest.raises((CostbenchError, OSError)) as caught:
        open_storage(StorageSpec(url))
    assert message in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "optuna.db").write_text("this is text, not a database" * 100)
    with pytest.raises(CostbenchError, match=r"cannot be used: .*not a database"):
        open_storage(StorageSpec(f"sqlite:///{tmp_path}/optuna.db"))


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg", reason="needs the extra `sweep-postgres`")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(CostbenchError, match=r"cannot be used: .*refused") as caught:
        open_storage(StorageSpec(f"postgresql+psycopg://me:secret@127.0.0.1:{port}/costbench"))
    assert "secret" not in str(caught.value)
