"""Compiles a program with XLA's own fusions in a process of its own, with the flags that users have.

`python -m costbench.hardware.xla_cpu.own_default FOLDER` reads `program.pb` and writes `own.bin`, the
executable, unless XLA cannot keep it; `own_fused.pb`, the module with its fusions at the point where they are
made; and then `own.pb`, the module that was compiled.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from costbench.artifacts import read_bytes, write_bytes
from costbench.errors import CostbenchError, HloError
from costbench.hardware.xla_cpu.acceptance import LeftOutError
from costbench.hardware.xla_cpu.backend import OWN_FLAGS, Backend

OWN_MODULE, OWN_EXECUTABLE, OWN_FUSED, _PROGRAM = "own.pb", "own.bin", "own_fused.pb", "program.pb"
_TIMEOUT_S = 240


def compile_own_default(program: bytes, folder: Path, name: str) -> None:
    """Compiles a program as XLA does by itself, in a process with the flags for it, unless it is there.

    Args:
        program: serialised program.
        folder: folder where the module that was compiled is written, the one with fusions before it, and the
            executable.
        name: name of the program, for errors.

    Raises:
        LeftOutError: if that takes too long or fails.
    """
    if (folder / OWN_MODULE).exists() and (folder / OWN_FUSED).exists():
        return
    write_bytes(folder / _PROGRAM, program)
    command = [sys.executable, "-m", "costbench.hardware.xla_cpu.own_default", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        problem, expected = "XLA does not finish compiling it", f"at most {_TIMEOUT_S} s"
        raise LeftOutError(problem, where=name, expected=expected) from error
    if done.returncode < 0:
        problem = f"the process that compiles it was ended by signal {-done.returncode}"
        raise LeftOutError(problem, where=name, expected="memory for the program")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise LeftOutError(lines[-1][:300], where=name, expected="a program that XLA compiles for processors")


def main(folder: Path) -> None:
    """Compiles the program in a folder."""
    backend = Backend(OWN_FLAGS)
    loaded, fused = backend.compile_own_fused(read_bytes(folder / _PROGRAM))
    with suppress(HloError):
        write_bytes(folder / OWN_EXECUTABLE, backend.to_bytes(loaded))
    write_bytes(folder / OWN_FUSED, fused)
    write_bytes(folder / OWN_MODULE, backend.module_of(loaded))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CostbenchError as error:
        sys.exit(str(error))
