"""Reads a parameter file whole: the profile that it extends, and experiments written once for several.

The default profile is `params.yaml` in the root; `profiles/NAME/params.yaml` holds what differs from another
profile, whose name stands at its top (`extends: laptop`). Mappings are merged key by key, lists and values
are replaced, and of section `experiments` a profile has the entries that it names, in its order; `{}` takes
one as it is. So the keys that DVC interpolates (`run`, the names of `experiments`) stand in every file.

In section `experiments`

- `extends: NAME` starts an entry from another one, and `extends: NAME.VARIANT` a variant, or `settings`, from
  the changes of a variant; `extends: null` takes away what another profile has there;
- a variant that is null is left out;
- a variant whose name has braces stands for a product: `rate-{encoder}-{learning_rate}` for one variant for
  each pair of the values of `net.encoder` and `optimizer.learning_rate`. What varies is a list of values by
  dotted name, or changes by label; the first one varies slowest. Everything else is part of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from costbench.errors import ParamsError, nearest
from costbench.params import load_yaml, merge, nest, parse_section

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

FILE = "params.yaml"
SECTION = "experiments"
EXTENDS = "extends"
_VARIANTS, _SETTINGS = "variants", "settings"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Params:
    """The parameters of a profile, which a stage reads once where it starts and hands down.

    A section is parsed into the dataclass of the stage that asks for it, so that a stage's code does not
    include what other stages are made of.

    Attributes:
        path: parameter file, for errors.
        sections: its sections by name, with those that it extends and experiments written out.
    """

    path: Path
    sections: Mapping[str, Any]

    def section(self, name: str, cls: type[T]) -> T:
        """Returns a section as `cls`.

        Raises:
            ParamsError: naming the section or the key, if one is missing, unknown or has a wrong value.
        """
        return parse_section(self.sections, name, cls, where=self.path)


def load_params(path: Path) -> Params:
    """Returns the parameters of a profile.

    Raises:
        ParamsError: as `load_sections`.
    """
    return Params(path, load_sections(path))


def load_sections(path: Path) -> dict[str, Any]:
    """Returns all sections of a parameter file, with those that it extends and experiments written out.

    Raises:
        ParamsError: for a file that cannot be read, or that extends what is not there or itself.
    """
    sections = _with_base(path, ())
    if isinstance(sections.get(SECTION), Mapping):
        sections[SECTION] = expand_experiments(sections[SECTION], path)
    return sections


def _with_base(path: Path, before: tuple[Path, ...]) -> dict[str, Any]:
    changes: dict[str, Any] = load_yaml(path)
    if EXTENDS not in changes:
        return changes
    name = str(changes.pop(EXTENDS))
    if path.resolve() in before:
        raise ParamsError("extends itself", where=path, field=EXTENDS, expected="another profile")
    base = _with_base(profile_file(path, changes, name), (*before, path.resolve()))
    sections = merge(base, changes)
    known, named = _mapping(base.get(SECTION)), changes.get(SECTION)
    if isinstance(named, Mapping):
        sections[SECTION] = {
            entry: merge(_mapping(known.get(entry)), change) if isinstance(change, Mapping) else change
            for entry, change in named.items()
        }
    return sections


def profile_file(path: Path, sections: Mapping[str, Any], name: str) -> Path:
    """Returns the parameter file of the profile called `name`.

    It is that of the repository's root, if it holds the profile; else the one in the folder `profiles`; else
    what `costbench profile` put aside when it set another profile in the root.

    Args:
        path: a parameter file.
        sections: its content, whose `run.root` says where the repository is.
        name: name of the profile.

    Raises:
        ParamsError: if there is none.
    """
    root = path.parent / str(_mapping(sections.get("run")).get("root", "."))
    default = root / FILE
    run = _mapping(load_yaml(default).get("run")) if default.is_file() else {}
    earlier = root / str(run.get("out", "out")) / f"params.{name}.yaml"
    in_folder = root / "profiles" / name / FILE
    for candidate, holds in ((default, run.get("name") == name), (in_folder, True), (earlier, True)):
        if holds and candidate.is_file():
            return candidate
    raise ParamsError(f"no profile {name!r}", where=path, field=EXTENDS, expected=f"{default} or {in_folder}")


def expand_experiments(entries: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """Returns section `experiments` without `extends` and products, in the same order.

    Raises:
        ParamsError: naming the entry that extends what is not there, or a product without values.
    """
    whole = {name: _entry(name, entries, where, ()) for name in entries}
    mappings = {name: entry for name, entry in whole.items() if isinstance(entry, dict)}
    for name, entry in mappings.items():
        if isinstance(entry.get(_VARIANTS), Mapping):
            field = f"{SECTION}.{name}.{_VARIANTS}"
            entry[_VARIANTS] = _variants(entry[_VARIANTS], where, field)
    for name, entry in mappings.items():
        field = f"{SECTION}.{name}"
        if isinstance(entry.get(_SETTINGS), Mapping):
            entry[_SETTINGS] = _changes(entry[_SETTINGS], whole, where, f"{field}.{_SETTINGS}")
        if isinstance(entry.get(_VARIANTS), Mapping):
            entry[_VARIANTS] = {
                variant: _changes(change, whole, where, f"{field}.{_VARIANTS}.{variant}")
                for variant, change in entry[_VARIANTS].items()
            }
    return whole


def _entry(name: str, entries: Mapping[str, Any], where: Path, before: tuple[str, ...]) -> Any:
    """Returns an entry merged with those that it extends; a value that is no mapping as it is."""
    entry = entries[name]
    if not isinstance(entry, Mapping):
        return entry
    entry_changes = {key: value for key, value in entry.items() if key != EXTENDS}
    if entry.get(EXTENDS) is None:
        return entry_changes
    parent, field = entry[EXTENDS], f"{SECTION}.{name}.{EXTENDS}"
    if parent not in entries or parent in (*before, name):
        problem = (
            "extends itself" if parent in entries else f"no experiment {parent!r}{nearest(parent, entries)}"
        )
        raise ParamsError(problem, where=where, field=field, expected=f"one of {', '.join(entries)}")
    return merge(_mapping(_entry(parent, entries, where, (*before, name))), entry_changes)


def _changes(change: Any, entries: Mapping[str, Any], where: Path, field: str) -> Any:
    """Returns changes merged with those of the variant that they extend."""
    if not isinstance(change, Mapping) or EXTENDS not in change:
        return change
    changes = {key: value for key, value in change.items() if key != EXTENDS}
    entry, _, variant = str(change[EXTENDS]).partition(".")
    base = _mapping(_mapping(entries.get(entry)).get(_VARIANTS)).get(variant)
    if not isinstance(base, Mapping) or EXTENDS in base:
        problem = f"{change[EXTENDS]!r} is no variant that can be extended"
        expected = "EXPERIMENT.VARIANT, which extends no other one"
        raise ParamsError(problem, where=where, field=f"{field}.{EXTENDS}", expected=expected)
    return merge(base, changes)


def _variants(listed: Mapping[str, Any], where: Path, field: str) -> dict[str, Any]:
    """Returns variants with products written out and without those that are null."""
    variants: dict[str, Any] = {}
    for name, change in listed.items():
        if change is None:
            variants.pop(name, None)
        elif isinstance(change, Mapping) and _PLACEHOLDER.search(str(name)):
            for variant, changes in _product(name, change, where, f"{field}.{name}"):
                variants[variant] = merge(_mapping(variants.get(variant)), changes)
        elif isinstance(change, Mapping):
            variants[name] = merge(_mapping(variants.get(name)), change)
        else:
            variants[name] = change
    return variants


def _product(
    pattern: str, content: Mapping[str, Any], where: Path, field: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields name and changes of each variant of a product."""
    placeholders = _PLACEHOLDER.findall(pattern)
    constant: dict[str, Any] = {}
    factors: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for key, values in content.items():
        word = str(key).rpartition(".")[2]
        if word not in placeholders:
            constant = merge(constant, nest({key: values}))
        elif isinstance(values, Mapping):
            factors[word] = [(str(label), _mapping(change)) for label, change in values.items()]
        elif isinstance(values, list):
            factors[word] = [(_label(value), nest({key: value})) for value in values]
    missing = [word for word in placeholders if not factors.get(word)]
    if missing:
        expected = "a list of values by dotted name, or changes by label"
        raise ParamsError(f"no values for {{{missing[0]}}}", where=where, field=field, expected=expected)
    for combination in product(*factors.values()):
        labels = {word: label for word, (label, _) in zip(factors, combination, strict=True)}
        changes = constant
        for _, change in combination:
            changes = merge(changes, change)
        yield pattern.format(**labels), changes


def _label(value: object) -> str:
    """Returns how a value is named: a float as `3e-4`, others as they are written."""
    if not isinstance(value, float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
