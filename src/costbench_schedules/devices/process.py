"""Keeps one worker process alive, and turns whatever becomes of a request into a reply or a reason."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from typing import Any

from costbench.errors import DataError
from costbench.installation import install_line

TIMEOUT_BUILD, TIMEOUT_RUN, CRASH = "build time-out", "run time-out", "crash"
"""Reasons for which a worker had to be replaced."""
_START_S = 120.0
_LINE_LENGTH = 400
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Limits:
    """What one schedule may take.

    Attributes:
        build_s: seconds within which the machine code has to be there.
        run_s: seconds of all its runs.
        memory_bytes: bytes of the worker's address space; 0 for no limit.
        threads: number of threads that parallel loops of a schedule run on.
        command: program that serves requests; the worker of this package if empty.
    """

    build_s: float = 10.0
    run_s: float = 10.0
    memory_bytes: int = 12 << 30
    threads: int = 1
    command: tuple[str, ...] = ()


def require_tvm() -> None:
    """Raises DataError if TVM is not installed."""
    if util.find_spec("tvm") is None:
        raise DataError("TVM is not installed", expected=install_line("cpu"))


class WorkerFailedError(Exception):
    """A schedule ended its worker, or took too long; the message is the reason."""


class WorkerProcess:
    """A worker, started when it is first asked and after each failure.

    Args:
        limits: limits of every schedule.

    Attributes:
        host: facts of the machine that it runs on, once it has started.
        starts: number of workers that were started.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._reader = -1
        self._buffer = b""
        self._errors: Any = None
        self.host: Mapping[str, Any] = {}
        self.starts = 0

    def start(self) -> None:
        """Starts a worker if none is running.

        Raises:
            DataError: if it does not come up, with what it said last.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        reader, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                self._command(writer),
                stdin=subprocess.PIPE,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=(writer,),
                env=_environment(self._limits.threads),
                # Ctrl-C is for the parent, which finishes what it has and stops the worker itself.
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self._reader, self._buffer = reader, b""
        self.starts += 1
        try:
            self.host = self._message(time.monotonic() + _START_S, "start")["host"]
        except (WorkerFailedError, KeyError) as error:
            self.stop()
            problem = f"the measuring process does not start: {error}"
            raise DataError(problem, expected=install_line("cpu")) from error

    def _command(self, writer: int) -> list[str]:
        command = self._limits.command or (sys.executable, "-m", "costbench_schedules.devices.worker")
        return [*command, str(writer), str(self._limits.memory_bytes)]

    def ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        """Returns the answer to one request.

        Raises:
            WorkerFailedError: if the worker crashed or took too long; the next request gets a new one.
            DataError: if no worker can be started.
        """
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._crashed() from error
        answer = self._message(time.monotonic() + self._limits.build_s, TIMEOUT_BUILD)
        if "phase" in answer:
            answer = self._message(time.monotonic() + self._limits.run_s, TIMEOUT_RUN)
        return answer

    def _message(self, deadline: float, reason: str) -> Mapping[str, Any]:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = select.select([self._reader], [], [], max(0.0, left))[0]
            if not ready:
                self.stop()
                raise WorkerFailedError(reason)
            data = os.read(self._reader, _CHUNK)
            if not data:
                raise self._crashed()
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _crashed(self) -> WorkerFailedError:
        """Returns what is known of a worker that ended by itself."""
        assert self._process is not None
        code = self._process.wait()
        last_line = self._last_line()
        self.stop()
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerFailedError(f"{CRASH}: {name}" + (f": {last_line}" if last_line else ""))

    def _last_line(self) -> str:
        """Returns the last line that the worker printed."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_LINE_LENGTH] if lines else ""

    def stop(self) -> None:
        """Ends the worker, whatever it is doing."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
            self._process = None
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        if self._errors is not None:
            self._errors.close()
            self._errors = None


def _environment(threads: int) -> dict[str, str]:
    """Returns the environment of a worker: its threads, and the same modules as this process."""
    environment = dict(os.environ)
    environment |= {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment
