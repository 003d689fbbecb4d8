"""The result card of an entry: its numbers, and who made it, on what it was trained, for how long.

Equal predictions give equal numbers; what is stated beside them (`About`) is the author's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.artifacts import read_json, with_checksum, without_checksum, write_json
from costbench.errors import DataError
from costbench.params import load_yaml, parse
from costbench_suite.predictions import Predictions
from costbench_suite.scoring import Score
from costbench_suite.searches import Searches
from costbench_suite.task_data import TaskData
from costbench_suite.tasks import TASKS
from costbench_suite.versions import published

_STATED = ("about", "digest", "us_per_prediction")
"""Fields of a card that differ from run to run, or are the author's word."""
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class About:
    """What the author of an entry says of it: the file `about.yaml`.

    Attributes:
        name: name in the table.
        authors: people or team.
        description: model in a sentence.
        link: address of the code, a paper or a page; empty for none.
        code: `module:Class` beside the card, by which `costbench suite check` computes the predictions again.
        trained_on: what the model was trained on besides the suite's own training sets; empty for nothing.
        training_s: seconds that training took for all folds and seeds; 0 for a model that is not trained.
        hardware: what it was trained on, and predictions were made on.
        tuning: how hyper-parameters were chosen, and from how many trials; empty for as they came.
        knows_estimate: whether it reads the compiler's own estimate.
    """

    name: str
    authors: str = ""
    description: str = ""
    link: str = ""
    code: str = ""
    trained_on: str = ""
    training_s: float = 0.0
    hardware: str = ""
    tuning: str = ""
    knows_estimate: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.name.isprintable() or len(self.name) > 60:
            raise ValueError("name: one line of 1 to 60 characters")


@dataclass(frozen=True)
class Metric:
    """A mean with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Card:
    """The result of an entry on one task.

    Attributes:
        version: version of the suite.
        task: name of the task.
        about: what the author says.
        metrics: metrics of the task by name, the one that ranks entries first.
        numbers: all averages by name.
        by_application: first metric of each application.
        programs: number of programs scored.
        applications: number of applications.
        predictions: number of costs, all of them finite, and for all decisions.
        digest: digest of the predictions.
        us_per_prediction: time of a prediction in microseconds, where it was measured; 0 else.
        fresh: seed of the fresh test set; 0 for the suite's own.
        data_digest: digest of the data.
    """

    version: int
    task: str
    about: About
    metrics: Mapping[str, Metric]
    numbers: Mapping[str, float]
    by_application: Mapping[str, float]
    programs: int
    applications: int
    predictions: int
    digest: str
    us_per_prediction: float = 0.0
    fresh: int = 0
    data_digest: str = ""

    @property
    def is_of_version(self) -> bool:
        """Returns whether it is of the whole data of the suite's version, and of no fresh test set."""
        known = published().get(TASKS[self.task].folder)
        return known is not None and self.data_digest in known.data_digests


def make_card(data: TaskData, about: About, entry: Predictions | Searches, score: Score) -> Card:
    """Returns the card of an entry on some data."""
    facts, spent = data.facts, entry.predict_s
    return Card(
        version=facts.version,
        task=data.task.name,
        about=about,
        metrics={name: Metric(e.value, e.low, e.high) for name, e in score.intervals.items()},
        numbers=score.numbers,
        by_application=score.by_application,
        programs=score.num_programs,
        applications=score.num_applications,
        predictions=entry.count,
        digest=entry.digest,
        us_per_prediction=0.0 if spent is None else float(f"{1e6 * spent / entry.count:.3g}"),
        fresh=facts.fresh,
        data_digest=facts.digest,
    )


def differing_values(stated: Card, again: Card) -> dict[str, object]:
    """Returns the values of a card that follow from data and predictions and that scoring again gives others.

    Args:
        stated: card of the entry.
        again: card made of the same entry again.

    Returns:
        value of `again` by dotted name; None for one that it has not.
    """
    before, now = (dict(_values(asdict(card))) for card in (stated, again))
    return {
        name: now.get(name)
        for name in {**before, **now}
        if name.partition(".")[0] not in _STATED and not _are_close(before.get(name), now.get(name))
    }


def _values(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        yield name, value
        return
    for key, inner in value.items():
        yield from _values(inner, f"{name}.{key}" if name else key)


def _are_close(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return left == right


def card_path(folder: Path, task: str, name: str, fresh: int) -> Path:
    """Returns the file of a card, `TASK/NAME.json`, or `TASK/NAME-freshSEED.json`.

    Args:
        folder: folder of all entries.
        task: name of the task.
        name: name of the entry.
        fresh: seed of the fresh test set; 0 for the suite's own data.
    """
    suffix = f"-fresh{fresh}" if fresh else ""
    return folder / task / f"{file_name(name)}{suffix}.json"


def file_name(name: str) -> str:
    """Returns the name of an entry's files without their ending: letters of any script, digits, hyphens."""
    return re.sub(r"[\W_]+", "-", name.lower()).strip("-") or "entry"


def write_card(path: Path, card: Card) -> None:
    """Writes a card as JSON.

    Raises:
        DataError: if it cannot be written.
    """
    write_json(path, with_checksum(asdict(card)))


def read_card(path: Path) -> Card:
    """Returns the card in a file.

    Raises:
        DataError: naming the file and field, if it is missing, damaged or no card.
    """
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError("no result card", where=path, expected="an object")
    return parse(Card, without_checksum(content, path), where=path, error=DataError)


def read_about(path: Path) -> About:
    """Returns what an author says of an entry, from YAML.

    Raises:
        ParamsError: naming the file and key, for a key that is unknown or of a wrong type.
    """
    return parse(About, load_yaml(path), where=path)
