"""The search space of a sweep: ranges of hyper-parameters, given as data and checked against the model.

A hyper-parameter has the dotted name that it has in `train.TASK` (`net.hidden`, `optimizer.learning_rate`),
so a new one can be swept without new code. lpm2021 prints the values that its own search found (tables 6 and
7); the ranges of the profiles go from the least to the largest of these. Optuna 5 calls a range a
distribution.
"""

from __future__ import annotations

import logging
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any

from costbench.errors import ChoiceError, ParamsError
from costbench.execution.dotted import is_part
from costbench.experiments.sweeps.best import Value, with_values
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.pyg_convolutions import PREFIX, find_convolution
from costbench.models.networks.reductions import REDUCTIONS
from costbench.models.spec import LAYOUT_ENCODERS
from costbench.training.spec import AnyTrainSpec, LayoutTrainSpec, TrainSpec

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

_log = logging.getLogger(__name__)
_TABLES: Mapping[type, Mapping[str, Collection[str]]] = {
    TrainSpec: {"net.encoder": ENCODERS, "net.reduction": REDUCTIONS},
    LayoutTrainSpec: {"net.encoder": LAYOUT_ENCODERS},
}
# Encoders and reductions of lpm2021. A name listed here that is not implemented is left out of a range; any
# other unknown name is an error.
_PAPER = {
    "net.encoder": ("none", "graphsage", "gat"),
    "net.reduction": ("per-node", "column-wise", "lstm", "transformer"),
}
PARTS = ("net.encoder", "net.reduction", "net.features", "loss")
"""Hyper-parameters that may be dotted paths of a user's own."""
Stored = bool | int | float | str | None
"""A value as Optuna stores it."""
# Trials are comparable only if these are the same for all of them.
_SAME_FOR_ALL = ("monitor", "validation", "validation_configs")


@dataclass(frozen=True)
class Range:
    """The values that one hyper-parameter can take in a sweep.

    Attributes:
        choices: values to choose from; a single one sets the hyper-parameter for all trials.
        low: smallest value of a numeric range, included.
        high: largest value of a numeric range, included.
        step: restricts the values to `low` plus multiples of it.
        log: whether values are drawn evenly over the logarithm.
        when: restricts the range to trials in which other hyper-parameters have one of the listed values; in
            other trials the hyper-parameter has the model's value.
    """

    choices: tuple[bool | int | float | str | tuple[str, ...] | None, ...] | None = None
    low: int | float | None = None
    high: int | float | None = None
    step: int | float | None = None
    log: bool = False
    when: Mapping[str, tuple[bool | int | float | str | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.choices is not None:
            if any(value is not None for value in (self.low, self.high, self.step)) or self.log:
                raise ValueError("has choices, and must have no low, high, step or log beside them")
            if not self.choices or len({repr(choice) for choice in self.choices}) != len(self.choices):
                raise ValueError(f"choices are {list(self.choices)}, must be one or more different ones")
        elif self.low is None or self.high is None:
            raise ValueError("must have choices, or low and high")
        elif self.low > self.high:
            raise ValueError(f"low is {self.low}, must be at most high, {self.high}")
        elif self.step is not None and (self.log or self.step <= 0):
            raise ValueError(f"step is {self.step}, must be above zero, and not beside log")
        elif self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}, must be above zero where log is true")

    @property
    def only(self) -> bool:
        """Whether there is only one value."""
        return len(self.choices) == 1 if self.choices is not None else self.low == self.high

    @property
    def examples(self) -> tuple[Value, ...]:
        """Returns values that the model must accept: every choice, or both ends."""
        return (self.low, self.high) if self.choices is None else self.choices

    def has(self, value: Value) -> bool:
        """Returns whether `value` is one of its values; of a range with `step`, the ends alone count."""
        if self.choices is not None:
            # True == 1 in Python, but they are different choices.
            return any(
                choice == value and isinstance(choice, bool) == isinstance(value, bool)
                for choice in self.choices
            )
        assert self.low is not None
        assert self.high is not None
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Space:
    """Ranges that were checked against a model; see `resolve`.

    Attributes:
        base: the model, with the values that are the same for all trials.
        fixed: those values.
        ranges: ranges of the other hyper-parameters, unconditional ones first.
    """

    base: AnyTrainSpec
    fixed: Mapping[str, Value]
    ranges: Mapping[str, Range]

    @property
    def parts(self) -> dict[str, str]:
        """Returns the dotted paths of a user's own parts that trials may have, by the names of fields."""
        choices = [
            (f"{name}[{number}]", choice)
            for name, values_of in self.ranges.items()
            for number, choice in enumerate(values_of.choices or ())
        ]
        return self.base.parts | {
            field: str(choice)
            for field, choice in choices
            if is_part(str(choice)) and field.partition("[")[0] in PARTS
        }

    def suggest(self, trial: BaseTrial) -> dict[str, Value]:
        """Draws the values of all hyper-parameters of a trial, by dotted name.

        The order of the draws does not depend on the order in the file, so equal spaces give equal trials.
        """
        values: dict[str, Value] = dict(self.fixed)
        for name, values_of in self.ranges.items():
            if all(values.get(other) in allowed for other, allowed in values_of.when.items()):
                values[name] = _draw(trial, name, values_of, _hint(type(self.base), name))
        return values

    def of_the_model(self) -> dict[str, Stored]:
        """Returns the model's own values of the hyper-parameters, as Optuna stores values.

        The result is empty where the model is not a point of the space.
        """
        values: dict[str, Value] = dict(self.fixed)
        stored: dict[str, Stored] = {}
        for name, values_of in self.ranges.items():
            if all(values.get(other) in allowed for other, allowed in values_of.when.items()):
                values[name] = attrgetter(name)(self.base)
                if not values_of.has(values[name]):
                    return {}
                stored[name] = _label(values[name])
        return stored


def resolve(ranges: Mapping[str, Range], model: AnyTrainSpec, where: str | PathLike[str], name: str) -> Space:
    """Checks ranges against a model.

    Args:
        ranges: ranges by dotted name of the hyper-parameter.
        model: the model that trials change.
        where: parameter file, for errors.
        name: dotted name of `ranges` in the file, for errors.

    Raises:
        ParamsError: for a hyper-parameter that does not exist, a value that it cannot have, or a condition on
            a hyper-parameter that is not in the space or is itself conditional.
    """
    ranges = {
        key: _known(key, values_of, _TABLES[type(model)], where, f"{name}.{key}")
        for key, values_of in ranges.items()
    }
    if not ranges:
        raise ParamsError("empty", where=where, field=name, expected="one or more hyper-parameters")
    for key, values_of in ranges.items():
        _check(key, values_of, model, where, f"{name}.{key}")
        _check_conditions(values_of, ranges, where, f"{name}.{key}.when")
    fixed = {
        key: values_of.examples[0]
        for key, values_of in ranges.items()
        if values_of.only and not values_of.when
    }
    order = sorted(ranges, key=lambda key: (bool(ranges[key].when), key))
    base = with_values(model, fixed, where=where, field=name)
    return Space(base, fixed, {key: ranges[key] for key in order if key not in fixed})


def _known(
    key: str, values_of: Range, tables: Mapping[str, Collection[str]], where: str | PathLike[str], name: str
) -> Range:
    """Returns the range without the paper's encoders and reductions that are not implemented."""
    table = tables.get(key)
    if table is None or values_of.choices is None:
        return values_of
    convolutions = {choice for choice in values_of.choices if _is_convolution(key, choice, where, name)}
    convolutions |= {choice for choice in values_of.choices if isinstance(choice, str) and is_part(choice)}
    for choice in values_of.choices:
        if choice not in table and choice not in _PAPER[key] and choice not in convolutions:
            names = ", ".join(sorted(table))
            raise ParamsError(
                f"unknown choice {choice!r}", where=where, field=name, expected=f"some of {names}"
            )
    left_out = [choice for choice in values_of.choices if choice not in table and choice not in convolutions]
    if left_out:
        _log.warning("%s: %s: there is no %s yet; left out", where, name, ", ".join(map(str, left_out)))
    choices = tuple(choice for choice in values_of.choices if choice not in left_out)
    if not choices:
        raise ParamsError("no choice left", where=where, field=name, expected=f"some of {', '.join(table)}")
    return Range(choices=choices, when=values_of.when)


def _is_convolution(key: str, choice: Value, where: str | PathLike[str], name: str) -> bool:
    """Returns whether a choice names a convolution of PyG. Raises: ParamsError if it does not exist."""
    if key != "net.encoder" or not isinstance(choice, str) or not choice.startswith(PREFIX):
        return False
    try:
        find_convolution(choice)
    except (ChoiceError, ParamsError) as error:
        raise error.recast(ParamsError, where=where, field=name) from error
    return True


def _check(key: str, values_of: Range, model: AnyTrainSpec, where: str | PathLike[str], name: str) -> None:
    names = tuple(_names(type(model)))
    if key not in names:
        near = _nearest(key, names)
        raise ParamsError(f"no hyper-parameter{near}", where=where, field=name, expected=", ".join(names))
    if key == "seed" or (key.split(".")[0] in _SAME_FOR_ALL and not values_of.only):
        raise ParamsError("cannot be swept", where=where, field=name, expected="one value for all trials")
    for value in values_of.examples:
        try:
            with_values(model, {key: value}, where=where)
        except ParamsError as error:
            raise error.recast(ParamsError, where=where, field=name) from error
    if values_of.choices is None and _hint(type(model), key) not in (int, float):
        raise ParamsError("has low and high", where=where, field=name, expected="choices")
    if (
        values_of.step is not None
        and _hint(type(model), key) is int
        and values_of.step != int(values_of.step)
    ):
        raise ParamsError(f"has step {values_of.step}", where=where, field=name, expected="a whole number")


def _check_conditions(
    values_of: Range, ranges: Mapping[str, Range], where: str | PathLike[str], name: str
) -> None:
    for other, allowed in values_of.when.items():
        if other not in ranges or ranges[other].when:
            free = ", ".join(sorted(key for key in ranges if not ranges[key].when))
            raise ParamsError(f"depends on {other!r}", where=where, field=name, expected=f"some of {free}")
        if not allowed:
            raise ParamsError("lists no value", where=where, field=f"{name}.{other}")
        for value in allowed:
            if not ranges[other].has(value):
                problem = f"depends on {other} {value!r}"
                raise ParamsError(problem, where=where, field=name, expected=f"values of {other}")


def _draw(trial: BaseTrial, name: str, values_of: Range, hint: object) -> Value:
    if values_of.choices is not None:
        labels = {_label(choice): choice for choice in values_of.choices}
        return labels[trial.suggest_categorical(name, list(labels))]
    assert values_of.low is not None
    assert values_of.high is not None
    if hint is int:
        return trial.suggest_int(
            name, int(values_of.low), int(values_of.high), step=int(values_of.step or 1), log=values_of.log
        )
    return trial.suggest_float(
        name, float(values_of.low), float(values_of.high), step=values_of.step, log=values_of.log
    )


def _label(choice: Value) -> Stored:
    """Returns a choice as Optuna can store it: lists become text."""
    return "+".join(choice) if isinstance(choice, tuple) else choice


def _names(cls: type, prefix: str = "") -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    for declared in fields(cls):
        hint, name = hints[declared.name], f"{prefix}{declared.name}"
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _names(hint, f"{name}.")
        else:
            yield name


def _hint(spec: type, name: str) -> Any:
    """Returns the annotation of a hyper-parameter, without `| None`."""
    cls: Any = spec
    for part in name.split("."):
        cls = typing.get_type_hints(cls)[part]
    members = [member for member in typing.get_args(cls) if member is not types.NoneType]
    is_optional = typing.get_origin(cls) in (typing.Union, types.UnionType) and len(members) == 1
    return members[0] if is_optional else cls


def _nearest(key: str, names: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(key, names, n=1)
    return f", did you mean {close[0]!r}?" if close else ""
