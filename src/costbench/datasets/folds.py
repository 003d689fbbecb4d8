"""Divides programs into k folds over applications: every program is tested once, by a model of strangers.

Programs belong together if a chain of shared applications and shared builders (see `builder_of`) joins them:
ResNet v1, ResNet v2 and their parallel variants are one group. A group is tested in one fold, and is in no
other set of that fold, so no application and no builder is on both sides. Groups are placed by seeded keys
of their own, so adding a program to the corpus moves few others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costbench.datasets.splits import ProgramInfo, Split, applications_of, builder_of
from costbench.errors import DataError
from costbench.rng import stream_key

FOLDS = "folds"
"""Name of the kind of split in parameters, and of all folds together in result rows."""
_FOLD = re.compile(r"fold[1-9][0-9]*")


@dataclass(frozen=True)
class FoldsParams:
    """Key `folds` of section `split`: unseen applications, and every program tested once.

    Attributes:
        k: number of folds.
        seed: seed of the draws.
        num_validation: number of validation programs of a fold, at most.
    """

    k: int
    seed: int
    num_validation: int

    def __post_init__(self) -> None:
        if self.k < 2:
            raise ValueError(f"k is {self.k}, must be at least 2")
        if self.num_validation < 1:
            raise ValueError(f"num_validation is {self.num_validation}, must be at least 1")


def fold_name(fold: int) -> str:
    """Returns the name of a split's file and cells: `fold1` for fold 0, and so on."""
    return f"fold{fold + 1}"


def fold_names(k: int) -> tuple[str, ...]:
    """Returns `fold1` to `fold<k>`."""
    return tuple(map(fold_name, range(k)))


def expanded(names: Sequence[str], k: int) -> tuple[str, ...]:
    """Returns names of splits as in parameters, with `fold1` to `fold<k>` in place of `folds`."""
    return tuple(one for name in names for one in (fold_names(k) if name == FOLDS else (name,)))


def listed_split(name: str) -> str:
    """Returns the name under which the results of a split are listed: `folds` for every fold."""
    return FOLDS if _FOLD.fullmatch(name) else name


def connected_groups(programs: Sequence[ProgramInfo]) -> dict[str, tuple[str, ...]]:
    """Returns the names of programs that belong together, by the group's name.

    Two programs belong together if they share the application or a known builder, or both belong together
    with a third. A group is called after the first of its applications in the order of names, so that it
    mostly keeps its name when programs are added. Groups and names are sorted.

    Raises:
        DataError: if two programs have the same name.
    """
    applications_of(programs)
    owner: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while owner.setdefault(node, node) != node:
            node = owner[node]
        return node

    for program in programs:
        application, builder = ("application", program.application), ("builder", builder_of(program))
        # Builders sort behind applications, so the smallest node, the root, is always an application.
        for node in (application, builder) if builder[1] else (application,):
            first, second = sorted((root(application), root(node)))
            owner[second] = first
    groups: dict[str, list[str]] = {}
    for program in programs:
        groups.setdefault(root(("application", program.application))[1], []).append(program.name)
    return {name: tuple(sorted(members)) for name, members in sorted(groups.items())}


def fold_splits(programs: Sequence[ProgramInfo], k: int, seed: int, num_validation: int) -> tuple[Split, ...]:
    """Returns k splits, `fold1` to `fold<k>`, that together test every program exactly once.

    Large groups are placed before small ones, each in the fold that it prefers by its seeded keys among those
    that hold at most ceil(n / k) of the n programs with it, else in the emptiest fold. A fold therefore tests
    at most ceil(n / k) programs plus the largest group, and at least ceil(n / k) less k or the largest group.

    Validation programs are whole groups, too: the epoch that is kept is chosen on applications that training
    has not seen, as those that are tested. They are drawn by seeded keys, passing over groups that no longer
    fit, so the largest families stay in training.

    Args:
        programs: all there are, in any order.
        k: number of folds.
        seed: of all draws.
        num_validation: largest number of validation programs of a fold; a whole group fewer may be drawn.

    Raises:
        DataError: if two programs have the same name, k is below 2 or above the number of groups, no group is
            small enough for validation, or nothing is left to train on.
    """
    groups = connected_groups(programs)
    if not 2 <= k <= len(groups):
        raise DataError(
            f"{k} folds of {len(groups)} groups of applications",
            where=FOLDS,
            field="k",
            expected="at least 2, and at most one for each group",
        )
    places = _places(groups, k, seed)
    return tuple(_split(fold, groups, places, seed, num_validation) for fold in range(k))


def _places(groups: Mapping[str, Sequence[str]], k: int, seed: int) -> dict[str, int]:
    """Returns the fold that tests each group."""
    capacity = -(-sum(map(len, groups.values())) // k)

    def order(group: str) -> tuple[int, int]:
        # Sizes count by their number of binary digits, so that one more program seldom changes the order.
        return -len(groups[group]).bit_length(), stream_key(seed, FOLDS, "order", group)

    counts = [0] * k
    places = {}
    for group in sorted(groups, key=order):
        size = len(groups[group])
        preferred = _by_preference(group, k, seed)
        room = [fold for fold in preferred if counts[fold] + size <= capacity]
        fold = room[0] if room else min(preferred, key=counts.__getitem__)
        places[group] = fold
        counts[fold] += size
    return places


def _by_preference(group: str, k: int, seed: int) -> list[int]:
    return sorted(range(k), key=lambda fold: stream_key(seed, FOLDS, "fold", group, fold))


def _split(
    fold: int, groups: Mapping[str, Sequence[str]], places: Mapping[str, int], seed: int, num_validation: int
) -> Split:
    name = fold_name(fold)
    test = [program for group, place in places.items() if place == fold for program in groups[group]]
    rest = [group for group, place in places.items() if place != fold]
    validation: list[str] = []
    for group in sorted(rest, key=lambda group: stream_key(seed, FOLDS, "validation", name, group)):
        if len(validation) + len(groups[group]) <= num_validation:
            validation += groups[group]
    if num_validation and not validation:
        problem = f"no group of at most {num_validation} programs is left to validate on"
        raise DataError(problem, where=name, field="num_validation")
    train = [program for group in rest for program in groups[group] if program not in validation]
    return Split(name, tuple(sorted(train)), tuple(sorted(validation)), tuple(sorted(test)))
