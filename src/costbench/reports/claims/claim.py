"""The papers' claims about accuracy and searches as data: rows to compare, and the side that should lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from costbench.datasets.splits import FOLD_KINDS, FOLDS
from costbench.errors import choose
from costbench.metrics.rows import MAIN
from costbench.params import load_section

PAPERS = Path(__file__).parents[1] / "papers"
"""Folder of what the papers print and claim."""
_SECTIONS = (
    ("claims.yaml", "accuracy"),
    ("claims.yaml", "searches"),
    ("tpugraphs2023_claims.yaml", "claims"),
)
TPUGRAPHS = "tpugraphs2023"
"""Short id of the paper whose claims are counted and repeated on folds by themselves."""

Direction = Literal["left_better", "right_better", "no_difference", "not_worse", "at_most", "magnitude"]
Statistic = Literal[
    "geometric_mean",
    "mean",
    "median",
    "standard_deviation",
    "share_of_programs",
    "worst",
    "best",
    "kernel_mean",
    "seed_deviation",
]
TRAININGS = "trainings"
"""What claims about what training takes count."""
ANY = "any"
"""In place of a split: programs of all splits together, each with the models of its split. In place of a
chip: the first chip, by name, that has results for the most sides."""


@dataclass(frozen=True)
class Side:
    """Selects result rows: a model, its variant, and the split and chip it was tested on.

    Attributes:
        model: model that the rows are of.
        variant: variant of the model.
        split: split that the programs were held out by.
        chip: chip that was measured.
        kernels: group of kernels: `all`, or a collection of the layout task, such as `xla:random`.
        metric: metric in place of the claim's; empty for the claim's.
        task: task in place of the claim's; None for the claim's.
    """

    model: str = "learned"
    variant: str = MAIN
    split: str = "random"
    chip: str = "tpu_v2"
    kernels: str = "all"
    metric: str = ""
    task: str | None = None

    @property
    def rows(self) -> Side:
        """Returns what the rows are listed under: the side without metric and task."""
        return replace(self, metric="", task=None)

    @property
    def programs(self) -> tuple[str, str, str]:
        """Returns what sides have in common that are tested on the same programs; both kinds of folds are."""
        tested = FOLDS if self.split in FOLD_KINDS else self.split
        return (tested, self.task or "", self.kernels.partition(":")[0])


@dataclass(frozen=True)
class Claim:
    """One statement of a paper that result rows can support or contradict.

    Attributes:
        id: name of the claim, `<paper>.<name>`.
        where: table or section of the paper.
        statement: the claim in our words.
        task: task of the rows: `tile`, `fusion`, `layout`, or one of another package.
        metric: metric of the rows.
        direction: which side the paper sees ahead; `not_worse`: the left one is not behind; `at_most`: the
            right one leads by no more than `paper_effect`; `magnitude`: how large all sides are.
        paper_effect: the claimed side's lead as printed (the left one's for `no_difference`), a range where
            several pairs meet, None without a number.
        left: one or more sides, or none where rows cannot decide.
        right: sides that they are compared with.
        pairing: `all`: each left side is compared with each right side; `each`: first with first, and so on;
            `spread`: what is compared is the range of all of the left with that of all of the right.
        statistic: statistic over test programs, before the difference; `kernel_mean` weighs a program by its
            kernels, `seed_deviation` is the standard deviation over training runs of their means.
        scale: `difference` of statistics, or `ratio`: the statistic of the two sides' ratios, program by
            program, less one, in percent; `factor`: the statistic of the ratios as it is.
        against: number in place of the right side, for ratios.
        unit: unit of the effect.
        needs: whatever other than rows is missing to decide it; empty if nothing is.
        restates: id of the claim that this one decides with another model or split; empty for claims as the
            papers make them.
        wall_time: whether the metric is a wall time of this machine, whose numbers reports do not print.
        margin: largest difference that a claim of no difference counts as none; None for the largest that
            the papers call none.
        paper_level: mean of the two printed errors of a claim of no difference between errors; its
            difference is none relative to that.
        null_value: value of the metric where nothing is done; the claim holds only if that does not pass.
        blind: side that knows nothing; a claim that it passes too, in place of the left sides, cannot hold.
        magnitude: word of size in the statement, a name of `papers/magnitudes.yaml`; empty for a plain lead.
        set: set of comparisons that it belongs to (`claims.contrasts`).
        construction: reason why our results agree by how they are made, so that rows cannot test it.
        looks: how often fewer rows had been looked at, and this time (`evaluation.look`).
        counted: what stands in rows as `program`, and is drawn; of what training takes, a fold with a seed.
        grouped_by: what stands there as `application`, and is drawn, too; of trainings, the fold.
    """

    id: str
    where: str
    statement: str
    task: str
    metric: str
    direction: Direction
    paper_effect: float | tuple[float, float] | None
    left: tuple[Side, ...] = (Side(),)
    right: tuple[Side, ...] = (Side(),)
    pairing: Literal["all", "each", "spread"] = "all"
    statistic: Statistic = "geometric_mean"
    scale: Literal["difference", "ratio", "factor"] = "difference"
    against: float | None = None
    unit: str = "points"
    needs: str = ""
    restates: str = ""
    wall_time: bool = False
    margin: float | None = None
    paper_level: float | None = None
    null_value: float | None = None
    blind: Side | None = None
    magnitude: str = ""
    set: Literal["printed", "all_programs", "stand_in", "strongest", "real"] = "printed"
    construction: str = ""
    looks: int = 1
    counted: str = "programs"
    grouped_by: str = "applications"

    def __post_init__(self) -> None:
        if not all(self.id.partition(".")):
            raise ValueError(f"{self.id}: must start with the paper")
        is_magnitude = self.direction == "magnitude"
        right_fits = bool(self.right) or is_magnitude if self.against is None else not self.right
        if bool(self.needs) == bool(self.left and right_fits) and not self.construction:
            raise ValueError(f"{self.id}: give both sides, or say what is needed")
        ratios = self.scale != "difference"
        if self.against is not None and (not ratios or self.against <= 0.0):
            raise ValueError(f"{self.id}: only ratios are against a number, and one above zero")
        if ratios and (self.statistic not in _OF_RATIOS or self.pairing == "spread"):
            raise ValueError(f"{self.id}: of ratios there is one of {', '.join(_OF_RATIOS)}")
        if not ratios and self.statistic == "best":
            raise ValueError(f"{self.id}: the best program is that of the largest ratio")
        if self.pairing == "each" and len(self.left) != len(self.right):
            raise ValueError(f"{self.id}: {len(self.left)} sides cannot meet {len(self.right)} one by one")
        if is_magnitude and self.sides and self.statistic not in _OF_MAGNITUDES:
            raise ValueError(f"{self.id}: a magnitude is that of the worst program, or a mean or deviation")
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.magnitude:
            word = choose(magnitudes(), self.magnitude, f"magnitude of {self.id}")
            if word.of == "printed" and self.paper_effect is None:
                raise ValueError(f"{self.id}: {word.name} counts in a paper_effect, which is missing")
        if self.direction == "magnitude" and self.paper_effect is None:
            raise ValueError(f"{self.id}: a magnitude needs a paper_effect")
        if self.direction == "at_most" and not isinstance(self.paper_effect, float):
            raise ValueError(f"{self.id}: a lead of at most something needs a paper_effect")
        equal = self.direction == "no_difference"
        if self.paper_level is not None and (not equal or self.paper_level <= 0.0):
            raise ValueError(f"{self.id}: a paper_level above 0 belongs to a claim of no difference")
        if self.margin is not None and (not equal or self.margin <= 0.0):
            raise ValueError(f"{self.id}: a margin above 0 belongs to a claim of no difference")
        if self.looks < 1:
            raise ValueError(f"{self.id}: looks are {self.looks}, expected at least 1")

    @property
    def paper(self) -> str:
        """Short id of the paper."""
        return self.id.partition(".")[0]

    @property
    def printed(self) -> tuple[float, ...]:
        """Ends of the printed effect, or the effect itself; empty without one."""
        effect = self.paper_effect
        return effect if isinstance(effect, tuple) else () if effect is None else (effect,)

    @property
    def pairs(self) -> tuple[tuple[Side, Side], ...]:
        """Pairs of models that the claim compares; empty where the right side is a number."""
        if self.pairing == "each":
            return tuple(zip(self.left, self.right, strict=True))
        return tuple((left, right) for left in self.left for right in self.right)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Returns all sides, each once, left ones first."""
        return tuple(dict.fromkeys((*self.left, *self.right)))

    @property
    def tested_on(self) -> str:
        """Splits and chips of its sides: `random split, tpu_v2`."""
        splits = dict.fromkeys(_SPLITS.get(side.split, f"{side.split} split") for side in self.sides)
        chips = dict.fromkeys(side.chip for side in self.sides)
        return ", ".join(" and ".join(names) for names in (splits, chips))

    def with_sides(self, change: Callable[[Side], Side], **fields: Any) -> Claim:
        """Returns the same claim of other sides, and with other values of further fields.

        Args:
            change: function of a side that returns the one in its place.
            fields: field -> its value.
        """
        left, right = (tuple(map(change, sides)) for sides in (self.left, self.right))
        return replace(self, left=left, right=right, **fields)

    def on(self, chip: str) -> Claim:
        """Returns the same claim with a chip in place of `any`."""
        return self.with_sides(lambda side: replace(side, chip=chip) if side.chip == ANY else side)

    @property
    def sign(self) -> float:
        """+1 where more of the metric is better, -1 where less is."""
        more = self.metric.startswith(("kendall_tau", "speed", "opa", "gflops", "sum_to_measured"))
        return 1.0 if more or self.metric.endswith("_score") else -1.0


_SPLITS = {
    ANY: "all programs",
    "gains": "programs that gain most",
    "folds": "folds over applications",
    "random_folds": "folds over programs",
    "recorded": "recorded schedules",
    "tables": "tables of all configurations",
    "targets": "tables of other devices",
    "network-operators": "operators of networks",
    "tiles": "tile sizes",
}
_OF_RATIOS = ("geometric_mean", "median", "best")
_OF_MAGNITUDES = ("worst", "mean", "kernel_mean", "standard_deviation")


@dataclass(frozen=True)
class Magnitude:
    """What a word of size asks of an effect.

    Attributes:
        name: name of the word, as claims give it.
        of: unit of the bounds: `printed`, the effect that the paper prints, or `value`, that of the claim.
        reason: reason for the bounds.
        least: least effect, None without one.
        most: greatest effect, None without one.
    """

    name: str
    of: Literal["printed", "value"]
    reason: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Magnitudes:
    """All words of size."""

    magnitudes: tuple[Magnitude, ...]


@cache
def magnitudes() -> Mapping[str, Magnitude]:
    """Returns the words of size by name. Raises: ParamsError for broken data of the package."""
    words = load_section(PAPERS / "magnitudes.yaml", "magnitudes", Magnitudes).magnitudes
    return {word.name: word for word in words}


@dataclass(frozen=True)
class Claims:
    """All claims, in the order of reports."""

    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        for name, count in Counter(claim.id for claim in self.claims).items():
            if count > 1:
                raise ValueError(f"{name} is there twice")


def load_claims() -> tuple[Claim, ...]:
    """Returns the claims of lpm2021 and lpm2020, and of tpugraphs2023.

    Raises:
        ParamsError: if a data file of the package is broken.
    """
    return tuple(claim for file, section in _SECTIONS for claim in read_claims(PAPERS / file, section))


def read_claims(file: Path, section: str = "claims") -> tuple[Claim, ...]:
    """Returns the claims in a section of a YAML file.

    Raises:
        ParamsError: if the file is broken.
    """
    return load_section(file, section, Claims).claims


@dataclass(frozen=True)
class Margin:
    """The largest difference that counts as none.

    Attributes:
        size: largest such difference, in the unit of the effect or as a share of the sides' mean.
        relative: whether it is a share.
    """

    size: float
    relative: bool = False

    def at(self, level: Callable[[], float]) -> float:
        """Returns the margin in the unit of the effect.

        Args:
            level: returns the mean over the sides of our results.
        """
        return self.size * level() if self.relative else self.size


def margins(claims: tuple[Claim, ...]) -> dict[tuple[str, str], Margin]:
    """Returns by (task, unit) the largest difference that the papers still call no difference.

    Where all papers' claims of a task and unit have a level, differences are relative to it: 0.9 points of
    errors of 4.2% would be most of an error of 1%, and nothing of one of 30%.
    """
    by_task_and_unit: dict[tuple[str, str], Margin] = {}
    for key in dict.fromkeys((claim.task, claim.unit) for claim in claims):
        no_difference = [
            claim
            for claim in claims
            if (claim.task, claim.unit) == key and claim.direction == "no_difference" and printed_sizes(claim)
        ]
        relative = all(claim.paper_level is not None for claim in no_difference)
        levels = [(relative and claim.paper_level) or 1.0 for claim in no_difference]
        sizes = [printed_sizes(claim)[-1] / level for claim, level in zip(no_difference, levels, strict=True)]
        if sizes:
            by_task_and_unit[key] = Margin(max(sizes), relative)
    return by_task_and_unit


def printed_sizes(claim: Claim) -> tuple[float, ...]:
    """Returns the sizes of the printed effects, the largest last; empty without one."""
    return tuple(sorted(map(abs, claim.printed)))
