"""The papers' own numbers, as data, and which of our programs each of them is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from costbench.params import load_section

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class PaperScores:
    """Scores of the two models that lpm2021 compares: Tile-Size APE or MAPE in percent, Kendall's tau."""

    error_learned: float
    error_analytical: float
    tau_learned: float
    tau_analytical: float

    def score(self, metric: str, model: str) -> float:
        """The number for `error` or `tau` of `learned` or `analytical`."""
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
    """The half of one table that is about one task.

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


def table_of_paper(task: str, split: str) -> PaperTable | None:
    """The paper's table for a task (`tile`, `fusion`) and split (`random`, `manual`), or None.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    if task not in ("tile", "fusion") or split not in ("random", "manual"):
        return None
    return load_section(_FOLDER / "lpm2021.yaml", f"{task}_{split}", PaperTable)


@dataclass(frozen=True)
class GridRow:
    """A row of a `PrintedGrid`: label, the application of ours that it stands for, one value a column."""

    label: str
    application: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class PrintedGrid:
    """A table of lpm2020: programs by columns of their own.

    Attributes:
        paper: short id.
        table: its number in the paper.
        chip: what it was measured on.
        columns: names of the columns.
        rows: one a program.
        median: over programs, as printed, one a column.
    """

    paper: str
    table: str
    chip: str
    columns: tuple[str, ...]
    rows: tuple[GridRow, ...]
    median: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(len(values) != len(self.columns) for values in (self.median, *(r.values for r in self.rows))):
            raise ValueError(f"{self.table}: a row has not {len(self.columns)} values")

    def value(self, application: str, column: str) -> float | None:
        """The number of an application, or None."""
        found = (row.values for row in self.rows if row.application == application)
        values = next(found, None)
        return None if values is None else values[self.columns.index(column)]


@dataclass(frozen=True)
class VariantScores:
    """Errors of a variant in percent, over test programs, as printed."""

    mean: float
    median: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class PrintedVariant:
    """A row of an ablation: what is printed for each task."""

    variant: str
    label: str
    tile: VariantScores | None
    fusion: VariantScores | None


@dataclass(frozen=True)
class PaperAblation:
    """Table 3 or 4 of lpm2021."""

    paper: str
    table: str
    split: str
    chip: str
    variants: tuple[PrintedVariant, ...]


@dataclass(frozen=True)
class FixedSetting:
    """A row of lpm2021's Table 5, and where our parameters of training have the setting."""

    parameter: str
    applies_to: str
    value: str
    setting: str


@dataclass(frozen=True)
class FixedSettings:
    """lpm2021's Table 5."""

    paper: str
    table: str
    rows: tuple[FixedSetting, ...]


@dataclass(frozen=True)
class TunedSetting:
    """A row of lpm2021's Tables 6 and 7; None where a setting does not apply."""

    variant: str
    label: str
    hidden: int
    l2_normalize: bool
    module_layers: int
    transformer_layers: int | None
    heads: int | None
    learning_rate: float
    decay: float
    gradient_clip: str
    dropout: float
    loss: str


@dataclass(frozen=True)
class TunedSettings:
    """lpm2021's Table 6 or 7."""

    paper: str
    table: str
    rows: tuple[TunedSetting, ...]


def earlier_table(task: str, split: str) -> PrintedGrid | None:
    """lpm2020's Table 2 (`fusion`) or 3 (`tile`), or None for another task or split.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    if task not in ("tile", "fusion") or split != "random":
        return None
    return load_section(_FOLDER / "lpm2020.yaml", f"{task}_{split}", PrintedGrid)


def ablation_of_paper(name: str) -> PaperAblation:
    """lpm2021's Table 3 (`inputs`) or 4 (`networks`). Raises: ParamsError as `corpus_of_paper`."""
    return load_section(_FOLDER / "lpm2021.yaml", name, PaperAblation)


def fixed_settings() -> FixedSettings:
    """lpm2021's Table 5. Raises: ParamsError as `corpus_of_paper`."""
    return load_section(_FOLDER / "lpm2021.yaml", "fixed", FixedSettings)


def tuned_settings(task: str) -> TunedSettings:
    """lpm2021's Table 6 (`tile`) or 7 (`fusion`). Raises: ParamsError as `corpus_of_paper`."""
    return load_section(_FOLDER / "lpm2021.yaml", f"tuned_{task}", TunedSettings)


@dataclass(frozen=True)
class PaperSearches:
    """How a version of the paper searched.

    Attributes:
        paper: short id.
        section: where it says so.
        top_k: tile sizes measured per kernel; None where there is no tile autotuner.
        hardware_minutes: of fusion searches.
        model_minutes: CPU time of a search on the model before them.
        best_known_minutes: of the search that says what is possible.
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
    """How a version of the paper searched. Raises: ParamsError as `corpus_of_paper`."""
    return load_section(_FOLDER / f"{paper}.yaml", "searches", PaperSearches)
