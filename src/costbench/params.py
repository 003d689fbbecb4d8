"""Strict parameters: YAML sections become frozen dataclasses, and what does not fit is an error.

Each pipeline stage has one dataclass that is parsed once at the edge; below it only typed values
travel. The dataclass is the whole schema: its annotations say what is accepted, its defaults what
may be left out, its `__post_init__` (raising ValueError) which values are impossible. A misspelt
key is never ignored, `true` is never a number, and NaN is never a setting.

YAML is read as YAML 1.2 by the library that DVC reads the same file with: `1e-3` is a number, and `on`, `yes`
and `1:30` are plain text.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from costbench.errors import CostbenchError, ParamsError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

Where = str | PathLike[str]
_DIGEST_LENGTH = 16
_SHOWN_VALUE_LENGTH = 60
# Parameter files have some hundred; a few nested aliases make more values than fit into memory.
_MAX_VALUES = 1_000_000


def parse(cls: type[T], mapping: object, *, where: Where, field: str = "") -> T:
    """An instance of the dataclass `cls` from a mapping of field name to plain value.

    Understood annotations: bool, int, float, str, Literal, X | Y, X | None, tuple[X, ...],
    tuple[X, Y], Mapping[str, X] and dataclasses. An int is accepted where a float is asked and becomes one.

    Args:
        cls: the dataclass; an annotation not listed above is a TypeError.
        mapping: what the file holds.
        where: the file, for errors.
        field: dotted name of `mapping` inside the file, for errors.

    Raises:
        ParamsError: naming file, dotted field, offending value and what was expected, for an unknown
            key, a missing key without default, a wrong type, NaN or an infinity, or a ValueError
            from `__post_init__`.
    """
    if not isinstance(mapping, Mapping):
        _refuse(mapping, where, field, f"the keys {', '.join(_fields(cls))}")
    fields = _fields(cls)
    for key in mapping:
        if key not in fields:
            raise ParamsError(
                f"unknown key{_nearest(key, fields)}",
                where=where,
                field=_join(field, key),
                expected="one of " + ", ".join(sorted(fields)),
            )
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, declared in fields.items():
        if name in mapping:
            values[name] = _convert(hints[name], mapping[name], where, _join(field, name))
        elif declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING:
            raise ParamsError(
                "missing", where=where, field=_join(field, name), expected=_describe(hints[name])
            )
    return _build(cls, values, where, field)


def _build(cls: type[T], values: dict[str, Any], where: Where, field: str) -> T:
    try:
        return cls(**values)
    except CostbenchError as error:
        inner = _join(field, error.field) if error.field else field
        raise ParamsError(error.problem, where=where, field=inner, expected=error.expected) from error
    except ValueError as error:
        raise ParamsError(str(error), where=where, field=field) from error


def _fields(cls: type[DataclassInstance]) -> dict[str, dataclasses.Field[Any]]:
    return {declared.name: declared for declared in dataclasses.fields(cls) if declared.init}


def _join(field: str, key: object) -> str:
    return f"{field}.{key}" if field else str(key)


def _nearest(key: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(key), list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _refuse(value: object, where: Where, field: str, expected: str, hint: str = "") -> NoReturn:
    shown = repr(value)
    if len(shown) > _SHOWN_VALUE_LENGTH:
        shown = shown[: _SHOWN_VALUE_LENGTH - 3] + "..."
    raise ParamsError(
        f"{shown} ({_kind(value)}) is not accepted{hint}", where=where, field=field, expected=expected
    )


def _kind(value: object) -> str:
    """What a YAML author calls it."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "mapping"
    if isinstance(value, list | tuple):
        return "list"
    return type(value).__name__


def _convert(hint: Any, value: object, where: Where, field: str) -> Any:
    """`value` as the annotation `hint` asks, or a ParamsError."""
    origin = typing.get_origin(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return parse(hint, value, where=where, field=field)
    if origin is Literal:
        return _convert_literal(hint, value, where, field)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(hint, value, where, field)
    if origin is tuple:
        return _convert_tuple(hint, value, where, field)
    if origin is Mapping:
        return _convert_mapping(hint, value, where, field)
    if hint is type(None):
        if value is not None:
            _refuse(value, where, field, "null")
        return None
    if hint is float:
        return _convert_float(value, where, field)
    if hint in (bool, int, str):
        # By type, not isinstance: True is an int to Python and never to us.
        if type(value) is not hint:
            _refuse(value, where, field, _describe(hint))
        return value
    raise TypeError(f"{field}: a parameter cannot be annotated {hint!r}")


def _convert_float(value: object, where: Where, field: str) -> float:
    if type(value) not in (int, float):
        _refuse(value, where, field, "float")
    try:
        number = float(typing.cast("int | float", value))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _refuse(value, where, field, "a finite float")
    return number


def _convert_literal(hint: Any, value: object, where: Where, field: str) -> Any:
    choices = typing.get_args(hint)
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
    hint_text = _nearest(value, [choice for choice in choices if isinstance(choice, str)])
    _refuse(value, where, field, _describe(hint), hint_text)


def _convert_union(hint: Any, value: object, where: Where, field: str) -> Any:
    members = typing.get_args(hint)
    if value is None and type(None) in members:
        return None
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        return _convert(members[0], value, where, field)
    # A member of the value's own type goes first: 1 stays an int in `float | int`.
    for member in sorted(members, key=lambda member: member is not type(value)):
        try:
            return _convert(member, value, where, field)
        except ParamsError:
            continue
    _refuse(value, where, field, _describe(hint))


def _convert_tuple(hint: Any, value: object, where: Where, field: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        _refuse(value, where, field, _describe(hint))
    members = typing.get_args(hint)
    if len(members) == 2 and members[1] is Ellipsis:
        members = members[:1] * len(value)
    if len(members) != len(value):
        _refuse(value, where, field, _describe(hint))
    pairs = enumerate(zip(members, value, strict=True))
    return tuple(_convert(member, item, where, f"{field}[{index}]") for index, (member, item) in pairs)


def _convert_mapping(hint: Any, value: object, where: Where, field: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        _refuse(value, where, field, _describe(hint))
    _, member = typing.get_args(hint)
    return {key: _convert(member, item, where, _join(field, key)) for key, item in value.items()}


def _describe(hint: Any) -> str:
    """What an annotation accepts, in words."""
    origin = typing.get_origin(hint)
    members = typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"a mapping with {', '.join(_fields(hint))}"
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in members)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(member) for member in members)
    if origin is tuple and members[-1] is Ellipsis:
        return f"a list of {_describe(members[0])}"
    if origin is Mapping:
        return f"a mapping of names to {_describe(members[1])}"
    if origin is tuple:
        return f"a list of {len(members)}: {', '.join(_describe(member) for member in members)}"
    return "null" if hint is type(None) else str(getattr(hint, "__name__", hint))


def load_yaml(path: Where) -> dict[str, object]:
    """The mapping in a YAML file.

    Raises:
        ParamsError: naming `path`, if it is missing, unreadable, malformed (with line and column),
            gives a key twice, refers to itself, or holds no mapping.
    """
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError as error:
        raise ParamsError("no such file", where=path) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"cannot read: {error}", where=path) from error
    try:
        value = copy.deepcopy(_parsed(text))
    except YAMLError as error:
        raise ParamsError(_yaml_problem(error), where=path) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # What the reader raises for scalars, tags and depths that it did not expect.
        raise ParamsError(f"malformed YAML: {error}", where=path) from error
    if not isinstance(value, dict):
        _refuse(value, path, "", "a mapping of sections")
    for key in value:
        if not isinstance(key, str):
            _refuse(key, path, str(key), "a name as key")
    return value


@lru_cache(maxsize=16)
def _parsed(text: str) -> object:
    """What a text says; kept, since stages read the same parameter file several times."""
    value = YAML(typ="safe", pure=True).load(text)
    if _num_values(value, {}) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values, counting those that aliases repeat")
    return value


def _num_values(value: object, known: dict[int, int]) -> int:
    """How many values a value has in it, those behind aliases as often as they are referred to."""
    if not isinstance(value, dict | list | tuple | set):
        return 1
    if id(value) not in known:
        known[id(value)] = _MAX_VALUES + 1  # what a value that holds itself counts
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_num_values(part, known) for part in parts)
    return known[id(value)]


def _yaml_problem(error: YAMLError) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"malformed YAML at line {mark.line + 1} column {mark.column + 1}: {error.problem}"
    return f"malformed YAML: {' '.join(str(error).split())}"


def load_section(path: Where, section: str, cls: type[T]) -> T:
    """The section `section` of a parameter file as `cls`.

    Raises:
        ParamsError: as `load_yaml` and `parse`, or naming the sections there are.
    """
    sections = load_yaml(path)
    if section not in sections:
        raise ParamsError(
            f"missing section{_nearest(section, sections)}",
            where=path,
            field=section,
            expected="a section for this stage beside " + (", ".join(sections) or "none"),
        )
    return parse(cls, sections[section], where=path, field=section)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` in place of what they name; mappings are merged key by key."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def digest(params: DataclassInstance) -> str:
    """Identity of a set of values: SHA-256 over canonical JSON (sorted keys, no spaces), 16 digits.

    Equal instances have equal digests, whatever order or file the values came from.

    Raises:
        ValueError: if a value is NaN or infinite.
    """
    text = json.dumps(
        dataclasses.asdict(params), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_DIGEST_LENGTH]
