"""A PostgreSQL server of the test's own on loopback, in a folder that is gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deadline import HANGS_AFTER_S

SERVER_USERS = ("postgres", "nobody")


def server_programs() -> Path:
    """Folder of initdb and pg_ctl. Skips the test where there is none."""
    on_path = shutil.which("initdb")
    places = [Path(on_path).resolve().parent] if on_path else []
    # Debian keeps them out of PATH, one folder a version.
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for place in reversed(places):
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    pytest.skip("PostgreSQL is not installed: `make test-postgres` as root on Debian installs it")


def _server_user() -> str | None:
    """Who runs the server: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in SERVER_USERS if name in names)


def _call(command: list[str], folder: Path, user: str | None) -> None:
    done = subprocess.run(
        command, cwd=folder, user=user, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S
    )
    log = folder / "log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")


@contextmanager
def postgres_server() -> Iterator[str]:
    """URL of an empty database, for as long as the block runs."""
    programs, user = server_programs(), _server_user()
    folder = Path(tempfile.mkdtemp(prefix="costbench-postgres-"))
    try:
        if user is not None:
            shutil.chown(folder, user)
        cluster = folder / "cluster"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", str(cluster), "-w", "-t", "60"]
        _call(
            [str(programs / "initdb"), "-D", str(cluster), "-U", "costbench", "-A", "trust", "-N"],
            folder,
            user,
        )
        _call([*control, "-l", str(folder / "log"), "-o", settings, "start"], folder, user)
        try:
            yield f"postgresql+psycopg://costbench@127.0.0.1:{port}/postgres"
        finally:
            _call([*control, "-m", "immediate", "stop"], folder, user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
