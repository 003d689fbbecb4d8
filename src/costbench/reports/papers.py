"""The papers' own numbers, as data, and which of our programs each of them is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.params import load_section

_FOLDER = Path(__file__).parent / "papers"


@dataclass(frozen=True)
class PaperScores:
    """Scores of the two models that lpm2021 compares: Tile-Size APE in percent, Kendall's tau."""

    ape_learned: float
    ape_analytical: float
    tau_learned: float
    tau_analytical: float

    def score(self, metric: str, model: str) -> float:
        """The number for `ape` or `tau` of `learned` or `analytical`."""
        return float(getattr(self, f"{metric}_{model}"))


@dataclass(frozen=True)
class PaperRow(PaperScores):
    """A row of the paper's table.

    Attributes:
        label: as printed.
        application: application family of ours that it stands for.
        program: beginning of the program's name, where an application has several rows.
    """

    label: str
    application: str
    program: str = ""


@dataclass(frozen=True)
class PaperTable:
    """The tile half of one table.

    Attributes:
        paper: short id.
        table: its number in the paper.
        chip: what it was measured on.
        rows: one a program.
        median: over programs, as printed.
        geometric_mean: over programs, as printed ("Mean" in the paper).
    """

    paper: str
    table: str
    chip: str
    rows: tuple[PaperRow, ...]
    median: PaperScores
    geometric_mean: PaperScores

    def row_for(self, application: str, program: str) -> PaperRow | None:
        """The row that a program of ours is compared with, or None."""
        matching = (r for r in self.rows if r.application == application and program.startswith(r.program))
        return next(matching, None)

    def ordered(self, programs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """(application, program) pairs in the order of the paper's rows, others behind them."""

        def place(pair: tuple[str, str]) -> tuple[int, tuple[str, str]]:
            row = self.row_for(*pair)
            return (len(self.rows) if row is None else self.rows.index(row), pair)

        return tuple(sorted(programs, key=place))


@dataclass(frozen=True)
class PaperSet:
    """A row of one half of the papers' Table 1.

    Attributes:
        split: `random` or `manual`.
        part: `train`, `validation` or `test`.
        tile_programs: programs of the tile-size data.
        fusion_programs: programs of the fusion data.
        tile_samples: pairs of kernel and tile size (printed under "Kernels").
        fusion_kernels: kernels, duplicates eliminated.
    """

    split: str
    part: str
    tile_programs: int
    fusion_programs: int
    tile_samples: int
    fusion_kernels: int


@dataclass(frozen=True)
class PaperCorpus:
    """Table 1 of one version of the paper, and what the text beside it says of kernels.

    Attributes:
        paper: short id.
        table: its number in the paper.
        rows: one a split and set.
        nodes_mean: nodes per kernel, on average; None where the version does not say.
        nodes_max: nodes of the largest kernels, about.
        fast_share: fusion kernels faster than 5 us, about.
    """

    paper: str
    table: str
    rows: tuple[PaperSet, ...]
    nodes_mean: float | None
    nodes_max: int
    fast_share: float

    def row_for(self, split: str, part: str) -> PaperSet | None:
        """The row of a split and set, or None."""
        return next((row for row in self.rows if (row.split, row.part) == (split, part)), None)


PAPERS = ("lpm2021", "lpm2020")
"""Versions of the paper, the later first."""


def corpus_of_paper(paper: str) -> PaperCorpus:
    """Table 1 of a version of the paper.

    Raises:
        ParamsError: if there is no such version, or its data file is broken.
    """
    return load_section(_FOLDER / f"{paper}.yaml", "corpus", PaperCorpus)


def tile_table_of_paper(split: str) -> PaperTable | None:
    """The paper's table for a split (`random`, `manual`), or None where it has none.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    if split not in ("random", "manual"):
        return None
    return load_section(_FOLDER / "lpm2021.yaml", split, PaperTable)
