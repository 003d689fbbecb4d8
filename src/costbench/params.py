"""Strict parameters: YAML sections become frozen dataclasses, and what does not fit is an error.

Each pipeline stage has one dataclass that is parsed once at the edge; below it only typed values
travel. The dataclass is the whole schema: its annotations say what is accepted, its defaults what
may be left out, its `__post_init__` (raising ValueError) which values are impossible. A misspelt
key is never ignored, `true` is never a number, and NaN is never a setting. Pydantic checks and builds
it; its errors become one line that names file, field, value and expectation.

YAML is read as YAML 1.2 by the library that DVC reads the same file with: `1e-3` is a number, and `on`, `yes`
and `1:30` are plain text.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from costbench.artifacts import read_bytes
from costbench.errors import CostbenchError, DataError, ParamsError, nearest
from costbench.limits import MAX_DIGITS, MAX_YAML_BYTES, MAX_YAML_VALUES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import BaseModel, TypeAdapter, ValidationError

T = TypeVar("T", bound="DataclassInstance")

Where = str | PathLike[str]
_UNKNOWN = ("extra_forbidden", "invalid_key")
_DIGEST_LENGTH = 16
_LATER = "later"
_SHOWN_VALUE_LENGTH = 60
_INTEGER_TAG = "tag:yaml.org,2002:int"


def parse(
    cls: type[T],
    mapping: object,
    *,
    where: Where,
    field: str = "",
    error: type[CostbenchError] = ParamsError,
) -> T:
    """Returns an instance of the dataclass `cls` from a mapping of field name to plain value.

    Understood annotations: bool, int, float, str, Literal, X | Y, X | None, tuple[X, ...],
    tuple[X, Y], Mapping[str, X] and dataclasses. An int is accepted where a float is asked and becomes one.

    Args:
        cls: dataclass; an annotation of another kind is a TypeError.
        mapping: contents of the file.
        where: file, for errors.
        field: dotted name of `mapping` inside the file, for errors.
        error: kind of error that is raised; for files that are no parameters, another.

    Raises:
        ParamsError: or `error`, naming file, dotted field, offending value and what was expected, for an
            unknown key, a missing key without default, a wrong type, NaN or an infinity, or a ValueError
            from `__post_init__`.
    """
    # Imported only here: it takes longer than everything else that settings import.
    from pydantic import ValidationError

    try:
        parsed: T = _adapter(cls).validate_python(mapping)
    except ValidationError as problems:
        raise _translate(cls, mapping, problems, where, field).recast(error) from problems
    return parsed


@cache
def _adapter(cls: type[DataclassInstance]) -> TypeAdapter[Any]:
    """Returns what checks and builds instances of a dataclass."""
    from pydantic import TypeAdapter

    return TypeAdapter(_strict(cls))


def _strict(hint: Any) -> Any:
    """Returns an annotation that converts nothing but int to float, and lists and mappings of a file.

    Pydantic's own strict mode asks for instances where a file has mappings, for tuples where it has lists; so
    strictness is asked of scalars, and a dataclass is checked as a model that forbids unknown keys.

    Raises:
        TypeError: for an annotation that `parse` does not understand.
    """
    from pydantic import AfterValidator, AllowInfNan, BeforeValidator, Strict

    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Annotated[_model(hint), AfterValidator(partial(_build, hint))]
    if hint is float:
        return Annotated[hint, Strict(), AllowInfNan(False)]
    if hint in (bool, int, str):
        return Annotated[hint, Strict()]
    if hint is type(None):
        return hint
    if origin is Literal:
        # Pydantic's literals accept 64.0 for 64.
        is_whole = all(type(choice) is int for choice in members)
        return Annotated[hint, BeforeValidator(_refuse_other_than_int)] if is_whole else hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_strict, members))]  # noqa: UP007 - of a tuple
    if origin is tuple:
        return tuple[tuple(member if member is Ellipsis else _strict(member) for member in members)]  # type: ignore[misc]
    if origin is Mapping:
        return Mapping[_strict(members[0]), _strict(members[1])]  # type: ignore[misc]
    raise TypeError(f"a parameter cannot be a {hint}")


@cache
def _model(cls: type[DataclassInstance]) -> type[BaseModel]:
    """Returns a model with the fields of a dataclass under aliases: no name collides with pydantic's own."""
    from pydantic import ConfigDict, Field, create_model

    hints = typing.get_type_hints(cls)
    fields: dict[str, Any] = {
        f"field_{name}": (
            _strict(hints[name]),
            Field(alias=name) if _is_required(declared) else Field(alias=name, default=None),
        )
        for name, declared in _fields(cls).items()
    }
    return create_model(cls.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _is_required(declared: dataclasses.Field[Any]) -> bool:
    return declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING


def _build(cls: type[DataclassInstance], model: BaseModel) -> object:
    """Returns the dataclass of a checked model.

    Pydantic says where an error of ours came from, as it does for ValueErrors of `__post_init__`.
    """
    from pydantic_core import PydanticCustomError

    try:
        return cls(**{name.removeprefix("field_"): getattr(model, name) for name in model.model_fields_set})
    except CostbenchError as error:
        raise PydanticCustomError("costbench", "{error}", {"error": error}) from error


def _refuse_other_than_int(value: object) -> object:
    from pydantic_core import PydanticCustomError

    if type(value) is not int:
        raise PydanticCustomError("int_type", "no int")
    return value


def _translate(
    cls: type[DataclassInstance], mapping: object, errors: ValidationError, where: Where, field: str
) -> ParamsError:
    """Returns the most telling of pydantic's errors as a ParamsError.

    An unknown key is often a misspelt one, and then explains what else is missing.
    """
    problems = errors.errors(include_url=False)
    unknown = [error for error in problems if error["type"] in _UNKNOWN]
    error = min(unknown, key=lambda error: len(error["loc"])) if unknown else problems[0]
    cause: Exception | None = error.get("ctx", {}).get("error")
    loc = error["loc"][:-1] if error["type"] in _UNKNOWN else error["loc"]
    hint, value, field = _locate(cls, mapping, field, loc)
    if error["type"] in _UNKNOWN:
        key, fields = error["loc"][-1], _fields(hint)
        problem, expected = f"unknown key{nearest(key, fields)}", "one of " + ", ".join(sorted(fields))
        return ParamsError(problem, where=where, field=_join(field, key), expected=expected)
    if error["type"] == "missing" and not isinstance(value, list | tuple):
        return ParamsError("missing", where=where, field=field, expected=describe(hint))
    if isinstance(cause, CostbenchError):
        inner = _join(field, cause.field) if cause.field else field
        return ParamsError(cause.problem, where=where, field=inner, expected=cause.expected)
    if isinstance(cause, ValueError):
        return ParamsError(str(cause), where=where, field=field)
    return _refusal(value, where, field, _expected(hint, value), _nearest_choice(hint, value))


def _locate(cls: Any, mapping: object, field: str, loc: tuple[int | str, ...]) -> tuple[Any, Any, str]:
    """Returns annotation, value and dotted name of the field that pydantic calls `loc`.

    For a union of several types it is the union: pydantic goes on with the members that it tried.
    """
    hint, value = cls, mapping
    for part in loc:
        hint = _without_none(hint)
        origin = typing.get_origin(hint)
        if dataclasses.is_dataclass(hint):
            hint = typing.get_type_hints(hint)[str(part)]
            value = value.get(part) if isinstance(value, Mapping) else None
            field = _join(field, part)
        elif origin is tuple and isinstance(part, int) and isinstance(value, list | tuple):
            if part >= len(value):
                break
            members = typing.get_args(hint)
            hint = members[0] if members[-1] is Ellipsis else members[part]
            value, field = value[part], f"{field}[{part}]"
        elif origin is Mapping and isinstance(value, Mapping) and part in value:
            if loc[-1] == "[key]":
                break
            hint, value, field = typing.get_args(hint)[1], value[part], _join(field, part)
        else:
            break
    return _without_none(hint), value, field


def _fields(cls: type[DataclassInstance]) -> dict[str, dataclasses.Field[Any]]:
    return {declared.name: declared for declared in dataclasses.fields(cls) if declared.init}


def _join(field: str, key: object) -> str:
    return f"{field}.{key}" if field else str(key)


def _refusal(value: object, where: Where, field: str, expected: str, hint: str = "") -> ParamsError:
    shown = repr(value)
    if len(shown) > _SHOWN_VALUE_LENGTH:
        shown = shown[: _SHOWN_VALUE_LENGTH - 3] + "..."
    return ParamsError(
        f"{shown} ({_kind(value)}) is not accepted{hint}", where=where, field=field, expected=expected
    )


def _kind(value: object) -> str:
    """Returns the kind of a value in the words of YAML."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "mapping"
    if isinstance(value, list | tuple):
        return "list"
    return type(value).__name__


def _without_none(hint: Any) -> Any:
    """Returns the one other member of a union with None; other annotations as they are."""
    members = [member for member in typing.get_args(hint) if member is not type(None)]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return members[0] if is_union and len(members) == 1 else hint


def _expected(hint: Any, value: object) -> str:
    if dataclasses.is_dataclass(hint):
        return f"the keys {', '.join(_fields(typing.cast('type[DataclassInstance]', hint)))}"
    if hint is float and type(value) in (int, float):
        return "a finite float"
    return describe(hint)


def _nearest_choice(hint: Any, value: object) -> str:
    if typing.get_origin(hint) is not Literal:
        return ""
    return nearest(value, [choice for choice in typing.get_args(hint) if isinstance(choice, str)])


def describe(hint: Any) -> str:
    """Returns what an annotation accepts, in words."""
    origin = typing.get_origin(hint)
    members = typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"a mapping with {', '.join(_fields(hint))}"
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in members)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(member) for member in members)
    if origin is tuple and members[-1] is Ellipsis:
        return f"a list of {describe(members[0])}"
    if origin is Mapping:
        return f"a mapping of names to {describe(members[1])}"
    if origin is tuple:
        return f"a list of {len(members)}: {', '.join(describe(member) for member in members)}"
    return "null" if hint is type(None) else str(getattr(hint, "__name__", hint))


def load_yaml(path: Where) -> dict[str, object]:
    """Returns the mapping in a YAML file.

    Raises:
        ParamsError: naming `path`, if it is missing, unreadable, malformed (with line and column), larger
            than `costbench.limits` say, gives a key twice, refers to itself, or holds no mapping.
    """
    try:
        text = read_bytes(path, MAX_YAML_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParamsError(f"cannot read: {error}", where=path) from error
    except DataError as error:
        raise error.recast(ParamsError) from error
    try:
        value = copy.deepcopy(_parse_yaml(text))
    except YAMLError as error:
        raise ParamsError(_yaml_problem(error), where=path) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # What the reader raises for scalars, tags and depths that it did not expect.
        raise ParamsError(f"malformed YAML: {error}", where=path) from error
    if not isinstance(value, dict):
        raise _refusal(value, path, "", "a mapping of sections")
    for key in value:
        if not isinstance(key, str):
            raise _refusal(key, path, str(key), "a name as key")
    return value


@lru_cache(maxsize=64)
def _parse_yaml(text: str) -> object:
    """Parses a text; cached, since stages read the same parameter file several times."""
    yaml = YAML(typ="safe", pure=True)
    node = yaml.compose(text)
    # Before values are made of the nodes: a merge key copies what an alias shares.
    if _num_values(node, {}) > MAX_YAML_VALUES:
        raise ValueError(f"more than {MAX_YAML_VALUES} values, those of aliases and merge keys included")
    return None if node is None else yaml.constructor.construct_document(node)


def _num_values(node: Node | None, counts: dict[Node, int]) -> int:
    """Counts the values inside a node; those behind aliases count once per reference.

    Raises:
        ValueError: for an integer of too many digits.
    """
    if node is None or isinstance(node, ScalarNode):
        if node is not None and node.tag == _INTEGER_TAG and len(node.value) > MAX_DIGITS:
            raise ValueError(f"an integer of {len(node.value)} digits, expected at most {MAX_DIGITS}")
        return 1
    if node not in counts:
        counts[node] = MAX_YAML_VALUES + 1  # what a value that holds itself counts
        is_mapping = isinstance(node, MappingNode)
        parts = [part for pair in node.value for part in pair] if is_mapping else node.value
        counts[node] = 1 + sum(_num_values(part, counts) for part in parts)
    return counts[node]


def _yaml_problem(error: YAMLError) -> str:
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"malformed YAML at line {mark.line + 1} column {mark.column + 1}: {error.problem}"
    return f"malformed YAML: {' '.join(str(error).split())}"


def load_section(path: Where, section: str, cls: type[T]) -> T:
    """Returns the section `section` of a parameter file as `cls`.

    Raises:
        ParamsError: as `load_yaml` and `parse_section`.
    """
    return parse_section(load_yaml(path), section, cls, where=path)


def parse_section(sections: Mapping[str, object], section: str, cls: type[T], *, where: Where) -> T:
    """Returns one of the sections of a parameter file as `cls`.

    Raises:
        ParamsError: as `parse`, or naming the sections there are.
    """
    if section not in sections:
        raise ParamsError(
            f"missing section{nearest(section, sections)}",
            where=where,
            field=section,
            expected="a section for this stage beside " + (", ".join(sections) or "none"),
        )
    return parse(cls, sections[section], where=where, field=section)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `base` with `changes` in place of what they name; mappings are merged key by key."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return result


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turns dotted names into nested mappings.

    >>> nest({"net.hidden": 64, "loss": "hinge"})
    {'net': {'hidden': 64}, 'loss': 'hinge'}
    """
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[last] = value
    return tree


def digest(params: DataclassInstance) -> str:
    """Returns the identity of values: SHA-256 over canonical JSON (sorted keys, no spaces), 16 digits.

    Equal instances have equal digests, whatever order or file the values came from. Fields made by `later`
    are left out where they have their default.

    Raises:
        ValueError: if a value is NaN or infinite.
    """
    text = json.dumps(
        plain_values(params), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
    )
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_DIGEST_LENGTH]


def later(default: Any) -> Any:
    """Returns a field that was added to a class of which there are digests: its default is in none of them.

    What was computed before the field existed thus stays valid.
    """
    return dataclasses.field(default=default, metadata={_LATER: True})


def plain_values(value: object) -> object:
    """Returns what `dataclasses.asdict` returns, for digests: without fields of `later` at their default."""
    if dataclasses.is_dataclass(value):
        return {
            declared.name: plain_values(getattr(value, declared.name))
            for declared in dataclasses.fields(value)
            if _LATER not in declared.metadata or getattr(value, declared.name) != declared.default
        }
    if isinstance(value, Mapping):
        return {key: plain_values(inner) for key, inner in value.items()}
    return [plain_values(inner) for inner in value] if isinstance(value, list | tuple) else value
