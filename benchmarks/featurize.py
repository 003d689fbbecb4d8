"""How fast `costbench featurize` is, beside what any reader of the same file does, in the same run.

    python -m benchmarks.featurize [PROGRAM ...] [--rounds 5] [--json]

`featurize` takes a file of the corpus to an npz file with the 140 features of every instruction. `parse`
decompresses it and lets protobuf's own parser (upb, in C) read it, nothing else; `verify` makes a verified
module of it, which the compiler reads. They take turns, in processor time, and the fastest of the rounds
counts. `over_parse` and `over_verify` are how many times as long featurizing takes; it includes a parse.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.experiments.tpugraphs.exporting import featurize_file
from costbench.hlo.reader import read_module, read_proto

PROGRAMS = ("dlrm_b2048_infer_f32", "resnet50_b64_train_f32", "nasnetmobile_b64_train_bf16")
CORPUS = Path("data/programs")
_SUFFIX = ".hlo.pb.zst"


@dataclass(frozen=True)
class Measured:
    """One program.

    Attributes:
        program: its name.
        instructions: in all of its computations.
        featurize_s: processor seconds.
        parse_s: processor seconds.
        verify_s: processor seconds.
    """

    program: str
    instructions: int
    featurize_s: float
    parse_s: float
    verify_s: float

    @property
    def ratios(self) -> dict[str, float]:
        """Returns how many times as long featurizing takes as each baseline, and instructions a second."""
        return {
            "over_parse": self.featurize_s / self.parse_s,
            "over_verify": self.featurize_s / self.verify_s,
            "instructions_per_s": self.instructions / self.featurize_s,
        }


def measure(path: Path, rounds: int) -> Measured:
    """Returns the measurements of a file; the first round warms up and does not count."""
    with tempfile.TemporaryDirectory() as folder:
        destination = Path(folder) / "graph.npz"
        works: tuple[Callable[[], object], ...] = (
            lambda: featurize_file(path, destination),
            lambda: read_proto(path),
            lambda: read_module(path),
        )
        times: list[list[float]] = [[] for _ in works]
        for _ in range(rounds + 1):
            for durations, work in zip(times, works, strict=True):
                started = time.process_time()
                work()
                durations.append(time.process_time() - started)
        instructions, _ = featurize_file(path, destination)
    return Measured(
        path.name.removesuffix(_SUFFIX), instructions, *(min(durations[1:]) for durations in times)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a row for each program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help="of the corpus")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = [measure(CORPUS / f"{name}{_SUFFIX}", options.rounds) for name in options.programs]
    if options.json:
        print(json.dumps([asdict(row) | row.ratios for row in rows]))
        return 0
    for row in rows:
        ratios = row.ratios
        print(
            f"{row.program}: {row.instructions:,} instructions in {row.featurize_s:.3f} s, "
            f"{ratios['instructions_per_s']:,.0f}/s; {ratios['over_parse']:.1f} times protobuf's parse, "
            f"{ratios['over_verify']:.2f} times reading a verified module"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
