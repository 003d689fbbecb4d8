"""How long large dumps take to read, take apart and compile, and how much memory.

    python -m benchmarks.large_dumps [PROGRAM ...] [--layers 126] [--json]

Beside programs of the corpus it takes a synthetic dump of Llama's size (`benchmarks.synthetic_dumps`). The
goals are 10 seconds of processor time for a program of 5,000 instructions, a minute and 4 GB for the dump.
Each subject has a process of its own, so its memory is its own as well; compiled functions that Numba has not
cached yet are compiled within these times.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks.synthetic_dumps import LLAMA_LAYERS, llama_dump
from costbench.compiler.program import PreparedProgram
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import read_module

PROGRAMS = ("densenet201_b32_infer_bf16", "efficientnetb0_b128_train_bf16", "resnet50_b64_train_f32")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Measured:
    """One program.

    Attributes:
        program: its name.
        instructions: in all computations of the file, bodies of fusions included.
        kernels: that our compiler makes of it, equal ones once.
        read_s: processor time for reading and verifying.
        compile_s: for taking fusions and asynchronous pairs apart, and compiling.
        peak_gb: largest resident memory of the process, 1e9 bytes, Python and libraries included.
    """

    program: str
    instructions: int
    kernels: int
    read_s: float
    compile_s: float
    peak_gb: float


def measure(path: Path) -> Measured:
    """Returns the measurements of a file; the peak of memory is that of the calling process so far."""
    module, read_s = _timed(lambda: read_module(path))

    def compiled() -> int:
        return len(PreparedProgram(inline_fusions(module), path.name).unique_kernels)

    kernels, compile_s = _timed(compiled)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    name = path.name.partition(".")[0]
    return Measured(name, module.num_instructions, kernels, read_s, compile_s, peak)


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--folder", type=Path, default=Path("data/programs"))
    parser.add_argument("--layers", type=int, default=LLAMA_LAYERS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        dump = Path(temporary) / f"llama_{options.layers}_layers.txt"
        dump.write_text(llama_dump(options.layers))
        files = [*(options.folder / f"{name}.hlo.pb.zst" for name in options.programs), dump]
        rows = []
        for file in files:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                rows.append(pool.submit(measure, file).result())
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    print(
        f"{'program':<34} {'instructions':>12} {'kernels':>8} {'read s':>7} {'compile s':>9} {'peak GB':>8}"
    )
    for row in rows:
        print(
            f"{row.program:<34} {row.instructions:>12,} {row.kernels:>8,} {row.read_s:>7.1f}"
            f" {row.compile_s:>9.1f} {row.peak_gb:>7.2f}"
        )


if __name__ == "__main__":
    main()
