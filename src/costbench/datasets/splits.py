"""Divides programs into training, validation and test sets.

Splits are over whole programs, never over kernels. `random` tests on unseen programs of known applications;
`manual` tests on unseen applications: other programs of a tested application are dropped, and so are programs
of other applications that come from the same builder of the model zoo. Programs are drawn by sorting them by
a seeded key of their own, so adding a program to the corpus moves few others. `folds.fold_splits` makes the
third kind of split, which tests every program.
"""

from __future__ import annotations

import ast
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
        train: to fit models and scalers on, by name.
        validation: to choose among models, by name.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """The facts about a program that a split depends on.

    Attributes:
        name: unique.
        application: family that it belongs to.
        builder: how the model zoo built it, as in the manifest (`wavernn(size=512)`); empty where unknown.
    """

    name: str
    application: str
    builder: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Names of programs by set, each sorted.

    Attributes:
        name: `random`, `manual`, or `fold1` and so on.
        train: to fit models and scalers on.
        validation: to choose among models.
        test: to report on.
        dropped: programs that are in no set since they are too similar to tested ones.
        reasons: why each of them is dropped, by name.

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
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise DataError(
                f"{', '.join(twice)} more than once", where=f"split {self.name}", expected="disjoint sets"
            )
        for part in ("train", "test"):
            if not self.sets()[part]:
                raise DataError(
                    "no program", where=f"split {self.name}", field=part, expected="at least one program"
                )

    def sets(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the programs by name of the set: train, validation, test, dropped."""
        return {part: getattr(self, part) for part in _SETS}

    def for_training(self) -> TrainingPrograms:
        """Returns the training and validation programs."""
        return TrainingPrograms(self.train, self.validation)

    def restricted(self, programs: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Returns each set restricted to `programs`, since a task may lack samples of some programs."""
        return {part: tuple(n for n in names if n in programs) for part, names in self.sets().items()}

    def check_known(self, programs: Collection[str], where: Path | str) -> None:
        """Raises DataError naming the programs of the split that are not among `programs`."""
        for part, names in self.sets().items():
            unknown = sorted(set(names) - set(programs))
            if unknown:
                raise DataError(
                    f"unknown program {', '.join(unknown)}",
                    where=where,
                    field=part,
                    expected="programs of the corpus",
                )


def random_split(
    programs: Sequence[ProgramInfo],
    seed: int,
    num_validation: int,
    num_test: int,
    test_applications: Sequence[str] = (),
) -> Split:
    """Draws test programs at random (lpm2021, section 4).

    Args:
        programs: all there are, in any order.
        seed: of the draws.
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
        test += _draw(candidates, seed, "test", 1)
    test += _draw(set(names) - set(test), seed, "test", num_test - len(test))
    validation = _draw(set(names) - set(test), seed, "validation", num_validation)
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
        programs: all there are, in any order.
        test_programs: names of the programs to test on.
        held_out_applications: their applications, and any others to keep out.
        dropped: further programs to drop, whose similarity no shared builder shows.
        seed: of the draw of validation programs.
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
    rest = set(names) - set(test_programs) - reasons.keys()
    validation = _draw(rest, seed, "validation", num_validation)
    return Split(
        "manual",
        _sorted(rest - set(validation)),
        _sorted(validation),
        tuple(sorted(test_programs)),
        _sorted(reasons),
        reasons,
    )


def builder_of(program: ProgramInfo) -> str:
    """Returns the identity of a program's builder: the function of the model zoo, `wavernn` of
    `wavernn(size=512)`, or the architecture where one function builds many (`ResNet50` of
    `keras_classifier(architecture='ResNet50')`); empty where unknown.
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


def read_split(path: Path, known: Collection[str] | None = None) -> Split:
    """Reads a split.

    Args:
        path: of the JSON file.
        known: names of existing programs; None to accept any.

    Raises:
        DataError: naming the file and the field, if it is missing, malformed, inconsistent or names a program
            that is not known.
    """
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
        split = Split(content["name"], **parts, reasons=reasons)
    except DataError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error
    if known is not None:
        split.check_known(known, path)
    return split


def read_training_programs(path: Path) -> TrainingPrograms:
    """Returns a split's training and validation programs alone. Raises: DataError, as `read_split` does."""
    return read_split(path).for_training()


def _names(value: object, path: Path, part: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise DataError("is malformed", where=path, field=part, expected="a list of program names")
    return _sorted(value)


def applications_of(programs: Sequence[ProgramInfo]) -> dict[str, str]:
    """Returns the application of each program by name. Raises: DataError, if two have the same name."""
    names = {program.name: program.application for program in programs}
    if len(names) != len(programs):
        twice = sorted(name for name, count in Counter(p.name for p in programs).items() if count > 1)
        raise DataError(f"two programs are called {twice[0]}", where="split")
    return names


def _require(wanted: Sequence[str], known: Collection[str], field: str, kind: str) -> None:
    for name in wanted:
        if name not in known:
            raise DataError(
                f"unknown {kind} {name!r}",
                where="manual split",
                field=field,
                expected=f"one of {', '.join(sorted(known))}",
            )


def _draw(candidates: Collection[str], seed: int, purpose: str, count: int) -> list[str]:
    if not 0 <= count <= len(candidates):
        raise DataError(f"cannot draw {count} programs for {purpose} from {len(candidates)}", where="split")
    return sorted(candidates, key=lambda name: (stream_key(seed, "split", purpose, name), name))[:count]


def _sorted(names: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
