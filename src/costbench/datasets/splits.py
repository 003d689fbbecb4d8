"""Divides programs into training, validation and test sets.

Splits are over whole programs, never over kernels. `random` tests on unseen programs of known applications;
`manual` tests on unseen applications: other programs of a tested application are dropped, and so are programs
of other applications that come from the same builder of the model zoo. `folds` divides programs into k folds
over applications, so that every program is tested once. `random_folds` draws the same programs one by one, as
`random` does: held against `folds`, they say what it costs that an application is unknown.

For folds, programs belong together if a chain of shared applications and shared builders (see `builder_of`)
joins them: ResNet v1, ResNet v2 and their parallel variants are one group. A group is tested in one fold, and
is in no other set of that fold, so no application and no builder is on both sides.

Programs and groups are drawn by sorting them by seeded keys of their own, so adding a program to the corpus
moves few others.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costbench.artifacts import read_json, write_json
from costbench.errors import DataError
from costbench.rng import stream_key

_SETS = ("train", "validation", "test", "dropped")


@dataclass(frozen=True, slots=True)
class TrainingPrograms:
    """The programs of a split that a model may depend on: a split without its tests.

    Code that fits models or chooses among them gets this type, so it cannot choose by test results.

    Attributes:
        train: names of programs to fit models and scalers on.
        validation: names of programs to choose among models by.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The facts about a program that a split depends on.

    Attributes:
        name: name of the program, which no other has.
        application: application family that it belongs to.
        builder: call of the model zoo that built it, as in the manifest (`wavernn(size=512)`); empty where
            unknown.
    """

    name: str
    application: str
    builder: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Names of programs by set, each sorted.

    Attributes:
        name: `random`, `manual`, or `fold1` and so on.
        train: programs to fit models and scalers on.
        validation: programs to choose among models by.
        test: programs to report on.
        dropped: programs that are in no set since they are too similar to tested ones.
        reasons: reason why each of them is dropped, by name.

    Raises:
        DataError: if a program is in two sets or twice in one, or if nothing is left to train or test on.
    """

    name: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = Counter(name for names in self.sets().values() for name in names)
        repeated = sorted(name for name, count in counts.items() if count > 1)
        if repeated:
            problem = f"{', '.join(repeated)} more than once"
            raise DataError(problem, where=f"split {self.name}", expected="disjoint sets")
        for part in ("train", "test"):
            if not self.sets()[part]:
                raise DataError(
                    "no program", where=f"split {self.name}", field=part, expected="at least one program"
                )

    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the programs by name of the set: train, validation, test, dropped."""
        return {part: getattr(self, part) for part in _SETS}

    def restricted(self, programs: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Returns each set restricted to `programs`, since a task may lack samples of some programs."""
        return {part: tuple(n for n in names if n in programs) for part, names in self.sets().items()}


def random_split(
    programs: Sequence[ProgramInfo],
    seed: int,
    num_validation: int,
    num_test: int,
    test_applications: Sequence[str] = (),
) -> Split:
    """Draws test programs at random (lpm2021, section 4).

    Args:
        programs: all programs, in any order.
        seed: seed of all random draws.
        num_validation: programs drawn for validation, after those for testing.
        num_test: programs drawn for testing.
        test_applications: applications that get one test program each, which count towards `num_test`; the
            papers' test set has one program from each of eight.

    Raises:
        DataError: if an application has no program, if there are more of them than `num_test`, or if too few
            programs are left.
    """
    names = applications_of(programs)
    if len(set(test_applications)) > num_test:
        raise DataError(
            f"{num_test} test programs for {len(set(test_applications))} applications",
            where="random split",
            field="num_test",
            expected="at least one program per test application",
        )
    test = []
    for application in sorted(set(test_applications)):
        candidates = [name for name in names if names[name] == application]
        if not candidates:
            raise DataError(
                f"no program of application {application!r}",
                where="random split",
                field="test_applications",
                expected=f"among {', '.join(sorted(set(names.values())))}",
            )
        test += _sample(candidates, seed, "test", 1)
    test += _sample(set(names) - set(test), seed, "test", num_test - len(test))
    validation = _sample(set(names) - set(test), seed, "validation", num_validation)
    train = set(names) - set(test) - set(validation)
    return Split("random", _sorted(train), _sorted(validation), _sorted(test))


def manual_split(
    programs: Sequence[ProgramInfo],
    test_programs: Sequence[str],
    held_out_applications: Sequence[str],
    dropped: Sequence[str] = (),
    *,
    seed: int = 0,
    num_validation: int = 0,
) -> Split:
    """Makes a split with given test programs and nothing similar in training (lpm2021, section 4).

    Programs of the held-out applications that are not tested on are dropped, and so is every program made by
    the builder (see `builder_of`) of a program of a held-out application.

    Args:
        programs: all programs, in any order.
        test_programs: names of the programs to test on.
        held_out_applications: their applications, and any others to keep out.
        dropped: further programs to drop, whose similarity no shared builder shows.
        seed: seed of the draw of validation programs.
        num_validation: programs drawn for validation from what is left.

    Raises:
        DataError: on an unknown program or application, if a test program's application is not held out, or
            if too few programs are left.
    """
    names = applications_of(programs)
    _require(test_programs, names, "test_programs", "program")
    _require(dropped, names, "dropped", "program")
    _require(held_out_applications, set(names.values()), "held_out_applications", "application")
    for name in test_programs:
        if names[name] not in held_out_applications:
            raise DataError(
                f"test program {name} is of application {names[name]!r}, which is not held out",
                where="manual split",
                field="held_out_applications",
            )
    reasons = _reasons_to_drop(programs, held_out_applications, dropped)
    reasons = {name: reason for name, reason in reasons.items() if name not in test_programs}
    remaining = set(names) - set(test_programs) - reasons.keys()
    validation = _sample(remaining, seed, "validation", num_validation)
    return Split(
        "manual",
        train=_sorted(remaining - set(validation)),
        validation=_sorted(validation),
        test=_sorted(test_programs),
        dropped=_sorted(reasons),
        reasons=reasons,
    )


def builder_of(program: ProgramInfo) -> str:
    """Returns the identity of a program's builder; empty where unknown.

    It is the function of the model zoo, `wavernn` of `wavernn(size=512)`, or the architecture where one
    function builds many (`ResNet50` of `keras_classifier(architecture='ResNet50')`).
    """
    try:
        call = ast.parse(program.builder.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return program.builder.partition("(")[0].strip()
    if not isinstance(call, ast.Call):
        return program.builder.strip()
    for keyword in call.keywords:
        if keyword.arg == "architecture" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ast.unparse(call.func)


def _reasons_to_drop(
    programs: Sequence[ProgramInfo], held_out: Sequence[str], dropped: Sequence[str]
) -> dict[str, str]:
    builders: dict[str, str] = {}
    for program in sorted(programs, key=lambda p: p.name):
        if program.application in held_out and builder_of(program):
            builders.setdefault(builder_of(program), program.application)
    reasons = dict.fromkeys(dropped, "named in the parameters")
    for program in programs:
        owner = builders.get(builder_of(program))
        if program.application in held_out:
            reasons[program.name] = f"of the held-out application {program.application}"
        elif owner is not None:
            reasons[program.name] = f"built by {builder_of(program)}, as is the held-out application {owner}"
    return dict(sorted(reasons.items()))


def write_split(path: Path, split: Split) -> None:
    """Writes a split as JSON. Raises: DataError naming `path` if that is impossible."""
    content: dict[str, object] = {part: list(names) for part, names in split.sets().items()}
    write_json(path, content | {"name": split.name, "reasons": dict(split.reasons)})


def read_split(path: Path) -> Split:
    """Reads a split from a JSON file.

    Raises:
        DataError: naming the file and the field, if it is missing, malformed or inconsistent.
    """
    if not path.exists():
        raise DataError("no such split", where=path, expected="one of `split.names`, of the stage `split`")
    content = read_json(path)
    if not isinstance(content, dict) or content.keys() != {"name", "reasons", *_SETS}:
        expected = f"an object of name, {', '.join(_SETS)}, reasons"
        raise DataError("is no split", where=path, expected=expected)
    parts = {part: _names(content[part], path, part) for part in _SETS}
    if not isinstance(content["name"], str):
        raise DataError(f"{content['name']!r}", where=path, field="name", expected="text")
    reasons = content["reasons"]
    if not isinstance(reasons, dict) or not all(isinstance(reason, str) for reason in reasons.values()):
        raise DataError("is malformed", where=path, field="reasons", expected="program name -> text")
    try:
        return Split(content["name"], **parts, reasons=reasons)
    except DataError as error:
        raise error.recast(DataError, where=path) from error


def read_training_programs(path: Path) -> TrainingPrograms:
    """Returns a split's training and validation programs alone. Raises: DataError, as `read_split` does."""
    split = read_split(path)
    return TrainingPrograms(split.train, split.validation)


def _names(value: object, path: Path, part: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise DataError("is malformed", where=path, field=part, expected="a list of program names")
    return _sorted(value)


def applications_of(programs: Sequence[ProgramInfo]) -> dict[str, str]:
    """Returns the application of each program by name. Raises: DataError, if two have the same name."""
    names = {program.name: program.application for program in programs}
    if len(names) != len(programs):
        repeated = min(name for name, count in Counter(p.name for p in programs).items() if count > 1)
        raise DataError(f"two programs are called {repeated}", where="split")
    return names


def _require(names: Sequence[str], known: Collection[str], field: str, kind: str) -> None:
    for name in names:
        if name not in known:
            raise DataError(
                f"unknown {kind} {name!r}",
                where="manual split",
                field=field,
                expected=f"one of {', '.join(sorted(known))}",
            )


def _sample(candidates: Collection[str], seed: int, purpose: str, count: int) -> list[str]:
    if not 0 <= count <= len(candidates):
        raise DataError(f"cannot draw {count} programs for {purpose} from {len(candidates)}", where="split")
    return sorted(candidates, key=lambda name: (stream_key(seed, "split", purpose, name), name))[:count]


def _sorted(names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


FOLDS, RANDOM_FOLDS = "folds", "random_folds"
"""Names of the kinds of split in parameters, and of all folds of a kind together in result rows."""
FOLD_KINDS = (FOLDS, RANDOM_FOLDS)
_FOLD = re.compile(r"((?:random_)?fold)[1-9][0-9]*")


@dataclass(frozen=True)
class FoldsParams:
    """Key `folds` of section `split`: every program tested once, on unseen applications or drawn at random.

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


def fold_name(fold: int, kind: str = FOLDS) -> str:
    """Returns the name of a split's file and cells: `fold1`, or `random_fold1`, for fold 0, and so on."""
    return f"{kind.removesuffix('s')}{fold + 1}"


def expand_folds(names: Sequence[str], k: int) -> tuple[str, ...]:
    """Returns names of splits as in parameters, with `fold1` to `fold<k>` in place of `folds`, and so on."""
    return tuple(
        split
        for name in names
        for split in ([fold_name(fold, name) for fold in range(k)] if name in FOLD_KINDS else [name])
    )


def check_split(name: str, field: str) -> None:
    """Checks the name of a split that the stage `split` makes, or of one fold.

    Args:
        name: the name.
        field: field of the parameters that holds it, for the error.

    Raises:
        ValueError: for any other name.
    """
    if name not in ("random", "manual") and not _FOLD.fullmatch(name):
        raise ValueError(
            f"{field} is {name!r}, must be random, manual, or a fold by name: fold1, random_fold1 and so on"
        )


def reported_split(name: str) -> str:
    """Returns the name under which reports list the results of a split: `folds` for `fold1` and so on."""
    fold = _FOLD.fullmatch(name)
    return f"{fold[1]}s" if fold else name


def connected_groups(programs: Sequence[ProgramInfo]) -> dict[str, tuple[str, ...]]:
    """Returns the names of programs that belong together, by the group's name.

    Two programs belong together if they share the application or a known builder, or both belong together
    with a third. A group is called after the first of its applications in the order of names, so that it
    mostly keeps its name when programs are added. Groups and names are sorted.

    Raises:
        DataError: if two programs have the same name.
    """
    applications_of(programs)
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while parents.setdefault(node, node) != node:
            node = parents[node]
        return node

    for program in programs:
        application, builder = ("application", program.application), ("builder", builder_of(program))
        # Builders sort behind applications, so the smallest node, the root, is always an application.
        for node in (application, builder) if builder[1] else (application,):
            first, second = sorted((root(application), root(node)))
            parents[second] = first
    groups: dict[str, list[str]] = {}
    for program in programs:
        groups.setdefault(root(("application", program.application))[1], []).append(program.name)
    return {name: tuple(sorted(members)) for name, members in sorted(groups.items())}


def fold_splits(
    programs: Sequence[ProgramInfo], k: int, seed: int, num_validation: int, kind: str = FOLDS
) -> tuple[Split, ...]:
    """Returns k splits, `fold1` to `fold<k>`, that together test every program exactly once.

    Large groups are placed before small ones, each in the fold that it prefers by its seeded keys among those
    that hold at most ceil(n / k) of the n programs with it, else in the emptiest fold. A fold therefore tests
    at most ceil(n / k) programs plus the largest group, and at least ceil(n / k) less k or the largest group.

    Validation programs are whole groups, too: the best epoch is chosen on applications that training has not
    seen, as those that are tested. They are drawn by seeded keys, passing over groups that no longer fit, so
    the largest families stay in training.

    Of `random_folds`, `random_fold1` to `random_fold<k>`, each program is a group of its own.

    Args:
        programs: all programs, in any order.
        k: number of folds.
        seed: seed of all random draws.
        num_validation: largest number of validation programs of a fold; a whole group fewer may be drawn.
        kind: one of `FOLD_KINDS`.

    Raises:
        DataError: if two programs have the same name, k is below 2 or above the number of groups, no group is
            small enough for validation, or nothing is left to train on.
    """
    of_programs = {name: (name,) for name in sorted(applications_of(programs))}
    groups = connected_groups(programs) if kind == FOLDS else of_programs
    if not 2 <= k <= len(groups):
        divided = "groups of applications" if kind == FOLDS else "programs"
        expected = f"at least 2, and at most the number of {divided}"
        raise DataError(f"{k} folds of {len(groups)} {divided}", where=kind, field="k", expected=expected)
    folds = _assign_folds(groups, k, seed, kind)
    names = [fold_name(fold, kind) for fold in range(k)]
    return tuple(_fold_split(name, i, groups, folds, seed, num_validation) for i, name in enumerate(names))


def _assign_folds(groups: Mapping[str, Sequence[str]], k: int, seed: int, kind: str) -> dict[str, int]:
    """Returns the fold that tests each group."""
    capacity = -(-sum(map(len, groups.values())) // k)

    def order(group: str) -> tuple[int, int]:
        # Sizes count by their number of binary digits, so that one more program seldom changes the order.
        return -len(groups[group]).bit_length(), stream_key(seed, kind, "order", group)

    counts = [0] * k
    folds = {}
    for group in sorted(groups, key=order):
        size = len(groups[group])
        preferred = sorted(range(k), key=lambda fold: stream_key(seed, kind, "fold", group, fold))
        with_room = [fold for fold in preferred if counts[fold] + size <= capacity]
        fold = with_room[0] if with_room else min(preferred, key=counts.__getitem__)
        folds[group] = fold
        counts[fold] += size
    return folds


def _fold_split(
    name: str,
    fold: int,
    groups: Mapping[str, Sequence[str]],
    folds: Mapping[str, int],
    seed: int,
    num_validation: int,
) -> Split:
    test = [program for group in groups if folds[group] == fold for program in groups[group]]
    others = [group for group in folds if folds[group] != fold]
    validation: list[str] = []
    for group in sorted(others, key=lambda group: stream_key(seed, FOLDS, "validation", name, group)):
        if len(validation) + len(groups[group]) <= num_validation:
            validation += groups[group]
    if num_validation and not validation:
        problem = f"no group of at most {num_validation} programs is left to validate on"
        raise DataError(problem, where=name, field="num_validation")
    train = [program for group in others for program in groups[group] if program not in validation]
    return Split(name, _sorted(train), _sorted(validation), _sorted(test))
