"""Says what the keys of a parameter file mean, from the docstrings of the dataclasses of its sections."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.events import ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node

from costbench.errors import ParamsError
from costbench.experiments.parameter_file import SECTION, load_sections
from costbench.extensions import STAGES, StageExtension, load_extensions
from costbench.params import describe

_STAGES = "costbench.experiments.stages"
SECTIONS: Mapping[str, str] = {
    "run": "costbench.experiments.workspace:RunParams",
    "generate": f"{_STAGES}.generate:GenerateParams",
    "split": f"{_STAGES}.split:SplitParams",
    "features": f"{_STAGES}.features:FeaturesParams",
    "sweep": f"{_STAGES}.sweep:SweepParams",
    "train": "costbench.training.spec:TrainParams",
    "baselines": "costbench.models.baselines.spec:BaselineParams",
    "evaluate": "costbench.experiments.evaluation.program:EvaluateParams",
    "autotune": "costbench.experiments.autotuning.work_items:AutotuneParams",
    "register": f"{_STAGES}.register:RegisterParams",
    "report": "costbench.reports.inputs:ReportParams",
}
"""The dataclass of each section of `params.yaml`, as module:class."""
_GRID = "costbench.experiments.grid.experiment:ImportedGrid"
_OF_ENTRIES: Mapping[str, tuple[str, str]] = {
    "settings": ("changes to section `train` for all variants", "a mapping of keys of `train.TASK`"),
    "variants": (
        "changes to the settings by name; `share` is the share of the training programs, `label` the name in"
        " tables",
        "a mapping of names to mappings of keys of `train.TASK`",
    ),
    "extends": ("entry that this one starts from", "the name of an entry"),
}
"""Meaning of the keys of an experiment that are no field of its grid, and what they accept."""
_UNITS: Mapping[str, str] = {
    "_s": "seconds",
    "_s_per_instruction": "seconds",
    "_mb": "MB",
    "_gib": "GiB",
    "_minutes": "minutes",
    "_percent": "percent",
}
_ATTRIBUTE = re.compile(r"    (\w+): (.*)")
_COMMENT_MARK = re.compile(r"(?<=[ \t])#")
_LINE = re.compile(r"[^\r\n]*")


@dataclass(frozen=True)
class Key:
    """What is known of a key of a parameter file.

    Attributes:
        name: dotted name.
        meaning: description in the docstring of its dataclass.
        accepts: values that it accepts, in words.
        default: value where it is left out; `MISSING` where it has to be given.
        unit: unit that its name says, or empty.
    """

    name: str
    meaning: str
    accepts: str
    default: object
    unit: str


@cache
def sections() -> Mapping[str, str]:
    """Returns the dataclass of each section, those of other packages' stages in files beside included."""
    stages = load_extensions(STAGES, StageExtension).values()
    return {**SECTIONS, **{name: cls for stage in stages for name, cls in stage.sections.items()}}


def keys(names: Iterable[str] | None = None) -> Iterator[Key]:
    """Yields all keys of sections, in order.

    What stands under names of the user's has the name `NAME`.

    Args:
        names: names of sections, whose code alone is imported; None for all but `experiments`.
    """
    for section in sections() if names is None else names:
        yield _section(section)
        yield from _keys(section_class(section), section)


def find_key(name: str) -> Key:
    """Returns what is known of a key by its dotted name.

    Raises:
        ParamsError: if there is none.
    """
    section, _, rest = name.partition(".")
    if section == SECTION:
        entry, _, rest = rest.partition(".")
        known = {key.name: key for key in _entry_keys(f"{SECTION}.{entry or 'NAME'}")}
        meaning = "experiments by name, each a grid of training runs with stages of its own"
        known[name if not rest else SECTION] = Key(name, meaning, "a mapping", dataclasses.MISSING, "")
    else:
        known = {key.name: key for key in keys([section] if section in sections() else [])}
    generic = _with_placeholder(name, _named(known))
    if name not in known and generic in known:
        return dataclasses.replace(known[generic], name=name)
    if name not in known:
        parent = generic.rpartition(".")[0]
        beside = [key for key in known if key.rpartition(".")[0] == parent] or list(sections())
        raise ParamsError("no such key", where="command line", field=name, expected=", ".join(beside))
    return known[name]


def value_of(params: Path, name: str) -> object:
    """Returns the value that a parameter file gives a key, with what it extends; `MISSING` if it gives none.

    Raises:
        ParamsError: for a file that cannot be read.
    """
    value: Any = dict(load_sections(params))
    for stage in load_extensions(STAGES, StageExtension).values():
        value |= stage.parameters(params)
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return dataclasses.MISSING
        value = value[part]
    return value


def with_comments(text: str, *, renew: bool = False) -> str:
    """Returns the text of a parameter file with the meaning of each key beside it.

    A comment is the first sentence of the key's description. Of entries under names of the user's, as in
    section `experiments`, the first has comments for all.

    Args:
        text: text of the file.
        renew: whether comments that stand beside keys are replaced; else they stay.
    """
    events = YAML(typ="safe", pure=True).parse(text)
    values = [(e.start_mark.index, e.end_mark.index) for e in events if isinstance(e, ScalarEvent)]

    def is_in_value(index: int) -> bool:
        return any(start <= index < end for start, end in values)

    parts, copied = [], 0
    for key, meaning in _meanings(text):
        line = text.rfind("\n", 0, key.start_mark.index) + 1
        end = next(_LINE.finditer(text, key.end_mark.index)).end()
        if text[line : key.start_mark.index].strip() or is_in_value(end):
            continue
        marks = [match.start() for match in _COMMENT_MARK.finditer(text, key.end_mark.index, end)]
        comment = next((mark for mark in marks if not is_in_value(mark)), None)
        if comment is None or renew:
            stop = line + len(text[line : end if comment is None else comment].rstrip())
            parts += [text[copied:stop], f"  # {_first_sentence(meaning)}"]
            copied = end
    return "".join([*parts, text[copied:]])


def _meanings(text: str) -> Iterator[tuple[Node, str]]:
    """Yields the keys of a parameter file with their meanings, in order; of the user's names the first's."""
    known = {key.name: key.meaning for key in (*keys(), *_entry_keys(f"{SECTION}.NAME"))}
    named = [SECTION, *_named(known)]
    seen = set[str]()
    for path, key in _key_nodes(YAML(typ="safe", pure=True).compose(text)):
        generic = _with_placeholder(path, named)
        if known.get(generic) and generic not in seen:
            yield key, known[generic]
        seen.add(generic)


def _named(known: Iterable[str]) -> list[str]:
    """Returns the keys that the user's own names stand under."""
    return [name.removesuffix(".NAME") for name in known if name.endswith(".NAME")]


def _with_placeholder(path: str, named: Sequence[str]) -> str:
    """Returns a dotted name with `NAME` in place of a name of the user's."""
    parent = next((name for name in named if path.startswith(f"{name}.")), "")
    return ".".join([parent, "NAME", *path.removeprefix(f"{parent}.").split(".")[1:]]) if parent else path


def _key_nodes(node: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yields the dotted names and nodes of the keys of mappings in mappings, in the order of the file."""
    for key, value in node.value if isinstance(node, MappingNode) else ():
        name = f"{prefix}{key.value}"
        yield name, key
        # What an alias stands for is further up.
        if value.start_mark.index > key.start_mark.index:
            yield from _key_nodes(value, f"{name}.")


def shown(value: object) -> str:
    """Returns a value as a parameter file writes it; `-` for one that is not there."""
    if value is dataclasses.MISSING:
        return "-"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value)


def _first_sentence(meaning: str) -> str:
    return re.split(r"(?<=[\w)`]{2})\. ", meaning)[0].rstrip(".")


def _section(name: str) -> Key:
    cls = section_class(name)
    return Key(name, _first_line(cls), describe(cls), dataclasses.MISSING, "")


def _first_line(cls: Any) -> str:
    """Returns what the docstring of a dataclass says first, without the name of its section."""
    first = (inspect.getdoc(cls) or "").partition("\n")[0]
    return first.partition(": ")[2] or first


def _keys(cls: Any, prefix: str) -> Iterator[Key]:
    hints, meanings = typing.get_type_hints(cls), attributes(cls)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], f"{prefix}.{field.name}" if prefix else field.name
        unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")
        yield Key(name, meanings.get(field.name, ""), describe(hint), _default(field), unit)
        inner = _dataclass_in(hint)
        if inner is not None:
            yield from _keys(inner, name)
        elif typing.get_origin(hint) is Mapping and dataclasses.is_dataclass(typing.get_args(hint)[1]):
            entry = typing.get_args(hint)[1]
            yield Key(f"{name}.NAME", _first_line(entry), describe(entry), dataclasses.MISSING, "")
            yield from _keys(entry, f"{name}.NAME")


def _entry_keys(prefix: str) -> Iterator[Key]:
    yield from _keys(_class(_GRID), prefix)
    for name, (meaning, accepts) in _OF_ENTRIES.items():
        default: object = None if name == "extends" else {}
        yield Key(f"{prefix}.{name}" if prefix else name, meaning, accepts, default, "")


def attributes(cls: type) -> dict[str, str]:
    """Returns the descriptions under `Attributes:` of a dataclass and of those that it inherits from."""
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        _, _, block = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        name = ""
        for line in block.splitlines():
            match = _ATTRIBUTE.fullmatch(line)
            if match is not None:
                name = match[1]
                descriptions[name] = match[2]
            elif line.startswith("        ") and name:
                descriptions[name] += " " + line.strip()
            else:
                name = ""
    return descriptions


def _dataclass_in(hint: Any) -> Any:
    """Returns the dataclass that an annotation is or may be, or None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next((member for member in typing.get_args(hint) if dataclasses.is_dataclass(member)), None)
    return hint if dataclasses.is_dataclass(hint) else None


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def section_class(name: str) -> Any:
    """Returns the dataclass of a section."""
    return _class(sections()[name])


@cache
def _class(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
