"""What papers printed, as data: tables of numbers, settings and searches, a YAML file a paper.

A printed table says which of our results each of its rows is compared with, by a label or by application.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from costbench.params import load_section

FOLDER = Path(__file__).parent
"""Folder of the papers' files."""
PAPERS = ("lpm2021", "lpm2020")
"""Versions of the paper, the later first."""


@dataclass(frozen=True)
class PrintedRow:
    """A row of a printed table.

    Attributes:
        label: name of the row: as printed, or the variant of ours that is compared with it.
        values: one number a column; None where nothing is printed.
        application: application family of ours that the row stands for; empty where rows go by label.
        program: beginning of the program's name, where an application has several rows.
        title: name of the row for people; empty for the label.
    """

    label: str
    values: tuple[float | None, ...]
    application: str = ""
    program: str = ""
    title: str = ""


@dataclass(frozen=True)
class _Printed:
    """A table of a paper.

    Attributes:
        paper: short id.
        table: its number in the paper.
    """

    paper: str
    table: str

    @property
    def key(self) -> str:
        """`lpm2021_table2`: begins names of tables that stand beside this one."""
        return f"{self.paper}_{self.table.replace(' ', '').lower()}"

    @property
    def name(self) -> str:
        """`Table 2 of lpm2021`."""
        return f"{self.table} of {self.paper}"


@dataclass(frozen=True)
class PrintedTable(_Printed):
    """A table of numbers.

    Attributes:
        columns: names of the columns.
        rows: rows in the paper's order.
        averages: printed averages by name (`median`, `geometric_mean`), one number a column.
        split: split of ours that it is compared with; empty for any.
        chip: chip that it was measured on; empty for any.
    """

    columns: tuple[str, ...]
    rows: tuple[PrintedRow, ...]
    averages: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    split: str = ""
    chip: str = ""

    def __post_init__(self) -> None:
        lines = {row.label: row.values for row in self.rows} | dict(self.averages)
        for label, values in lines.items():
            if len(values) != len(self.columns):
                raise ValueError(f"{label}: {len(values)} values for {len(self.columns)} columns")

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the rows, in order."""
        return tuple(row.label for row in self.rows)

    def value(self, label: str, column: str) -> float | None:
        """Returns a number, or None where there is no such row, or nothing is printed."""
        return self.value_in(next((row for row in self.rows if row.label == label), None), column)

    def numbers(self, row: PrintedRow) -> dict[str, float | None]:
        """Returns the numbers of a row by column."""
        return dict(zip(self.columns, row.values, strict=True))

    def value_in(self, row: PrintedRow | None, column: str) -> float | None:
        """Returns the number of a row, or None without such a row or column."""
        return None if row is None else self.numbers(row).get(column)

    def average(self, kind: str, column: str) -> float | None:
        """Returns a printed average (`median`, `geometric_mean`), or None where it is not printed."""
        values = self.averages.get(kind)
        return None if values is None or column not in self.columns else values[self.columns.index(column)]

    def row_for(self, application: str, program: str) -> PrintedRow | None:
        """Returns the row that a program of ours is compared with, or None."""
        rows = (r for r in self.rows if r.application == application and program.startswith(r.program))
        return next(rows, None)

    def ordered(self, programs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Returns (application, program) pairs in the order of the paper's rows, others behind them."""

        def rank(pair: tuple[str, str]) -> tuple[int, tuple[str, str]]:
            row = self.row_for(*pair)
            return (len(self.rows) if row is None else self.rows.index(row), pair)

        return tuple(sorted(programs, key=rank))


def printed_table(paper: str, section: str) -> PrintedTable:
    """Returns the table in a section of a paper's file.

    Raises:
        ParamsError: if there is no such paper or section, or the data file of the package is broken.
    """
    return load_section(FOLDER / f"{paper}.yaml", section, PrintedTable)


def main_table(task: str, split: str, paper: str = "lpm2021") -> PrintedTable | None:
    """Returns a paper's table of a task on a split, or None for those that it has none of.

    lpm2021 prints tiles and fusions on the random and the manual split, lpm2020 on the random one.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    printed = ("random", "manual") if paper == "lpm2021" else ("random",)
    return (
        printed_table(paper, f"{task}_{split}") if task in ("tile", "fusion") and split in printed else None
    )


@dataclass(frozen=True)
class PaperCorpus(_Printed):
    """Table 1 of one version of the paper, and what the text beside it says of kernels.

    Attributes:
        rows: one a `split` and set (`part`): programs of either task, pairs of kernel and tile size (printed
            under "Kernels"), and fusion kernels, duplicates eliminated.
        nodes_mean: nodes per kernel, on average; None where the version does not say.
        nodes_max: nodes of the largest kernels, about.
        fast_share: share of the fusion kernels that are faster than 5 us, about.
    """

    rows: tuple[Mapping[str, str | int], ...]
    nodes_mean: float | None
    nodes_max: int
    fast_share: float


def corpus_of_paper(paper: str) -> PaperCorpus:
    """Returns Table 1 of a version of the paper. Raises: ParamsError as `printed_table`."""
    return load_section(FOLDER / f"{paper}.yaml", "corpus", PaperCorpus)


@dataclass(frozen=True)
class PrintedSettings(_Printed):
    """A table of settings: lpm2021's Tables 5 to 7, tpugraphs2023's Table 5.

    Attributes:
        rows: column -> value of each row; None where a setting does not apply. `setting` is the path of it in
            our parameters of training, `variant` the network of ours that a row is beside.
    """

    rows: tuple[Mapping[str, str | bool | int | float | None], ...]


def printed_settings(paper: str, section: str) -> PrintedSettings:
    """Returns the settings in a section of a paper's file: `fixed`, `tuned_tile`, `tuned_fusion`, `settings`.

    Raises:
        ParamsError: as `printed_table`.
    """
    return load_section(FOLDER / f"{paper}.yaml", section, PrintedSettings)


@dataclass(frozen=True)
class PaperSearches:
    """How a version of the paper searched.

    Attributes:
        paper: short id.
        section: where it says so.
        top_k: tile sizes measured per kernel; None where there is no tile autotuner.
        hardware_minutes: minutes of hardware of fusion searches.
        model_minutes: CPU minutes of a search on the model before them.
        best_known_minutes: minutes of the search that says what is possible.
        repeats: searches of each kind, as its text says, then as its caption does.
    """

    paper: str
    section: str
    top_k: int | None
    hardware_minutes: tuple[float, ...]
    model_minutes: float
    best_known_minutes: float
    repeats: tuple[int, ...]


def searches_of_paper(paper: str) -> PaperSearches:
    """Returns how a version of the paper searched. Raises: ParamsError as `printed_table`."""
    return load_section(FOLDER / f"{paper}.yaml", "searches", PaperSearches)
