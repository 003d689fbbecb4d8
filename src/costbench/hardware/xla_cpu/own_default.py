"""Compiles a program with XLA's own fusions in a process with the flags that users have.

`python -m costbench.hardware.xla_cpu.own_default FOLDER` reads `program.pb` and writes `own.bin`, the
executable (where XLA cannot keep it, `own_fused.pb`, the module with its fusions), and then `own.pb`, the
module that was compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path

from costbench.artifacts import read_bytes, write_bytes
from costbench.errors import HloError
from costbench.hardware.xla_cpu.backend import OWN_FLAGS, Backend


def main(folder: Path) -> None:
    """Compiles the program in a folder."""
    backend = Backend(OWN_FLAGS)
    loaded, fused = backend.compile_own_fused(read_bytes(folder / "program.pb"))
    try:
        write_bytes(folder / "own.bin", backend.to_bytes(loaded))
    except HloError:
        write_bytes(folder / "own_fused.pb", fused)
    write_bytes(folder / "own.pb", backend.module_of(loaded))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
