"""One row of the corpus: which model, at which batch, step and precision, under which optimiser.

A program's name says the last three (`<stem>_b<batch>_<step>_<dtype>`), so they are not repeated. Rows are
written in families, which share an application and the paper that the layer sizes come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from corpus.context import Ctx
from corpus.zoo.keras_applications import keras_classifier
from costbench.errors import ChoiceError

PUBLISHED = "published sizes"
GUESSED = "inside not public, guessed"
STAND_IN = "namesake: published parts, arrangement guessed"

_NAME = re.compile(
    r"^[a-z][a-z0-9_]*_b(?P<batch>\d+)_(?P<step>train|infer)_(?P<dtype>f32|bf16)$", re.IGNORECASE
)


@dataclass(frozen=True)
class ProgramSpec:
    """Recipe of one program.

    Attributes:
        name: `<stem>_b<batch>_<step>_<dtype>`.
        application: family that the by-application split keeps together.
        build: model, a function of a `Ctx`.
        optimizer: name in `OPTIMIZERS`; empty for inference.
        faithful: source of the layer sizes.
        reference: text that describes the model, or for a guessed one its parts.
    """

    name: str
    application: str
    build: Callable[[Ctx], Any]
    optimizer: str
    faithful: str
    reference: str

    def __post_init__(self) -> None:
        if _NAME.match(self.name) is None:
            raise ChoiceError(f"program name {self.name!r}", expected="<stem>_b<batch>_<step>_<dtype>")
        if (self.step == "train") != bool(self.optimizer):
            raise ChoiceError(f"{self.name}: optimizer {self.optimizer!r}", expected="one for training only")

    def _part(self, group: str) -> str:
        match = _NAME.match(self.name)
        assert match is not None  # checked on construction
        return match[group]

    @property
    def batch(self) -> int:
        """Returns the number of examples per step."""
        return int(self._part("batch"))

    @property
    def step(self) -> str:
        """Returns `train` or `infer`."""
        return self._part("step")

    @property
    def dtype(self) -> str:
        """Returns the compute dtype, `f32` or `bf16`."""
        return self._part("dtype")

    @property
    def builder(self) -> str:
        """Returns the name of the zoo's function with its arguments, for the manifest."""
        if isinstance(self.build, partial):
            arguments = [repr(value) for value in self.build.args]
            arguments += [f"{key}={value!r}" for key, value in self.build.keywords.items()]
            return f"{self.build.func.__name__}({', '.join(arguments)})"
        return f"{self.build.__name__}()"

    @property
    def source(self) -> str:
        """Returns `keras` for the models that Keras ships, `jax` for the hand-written ones."""
        return "keras" if self.builder.startswith(keras_classifier.__name__) else "jax"

    def context(self) -> Ctx:
        """Returns a fresh recording context for this program."""
        return Ctx(self.batch, self.step == "train", self.dtype)


@dataclass(frozen=True)
class Row:
    """The fields of a program that differ within its family."""

    name: str
    optimizer: str
    build: Callable[[Ctx], Any]


def model(name: str, optimizer: str, build: Callable[..., Any], **sizes: Any) -> Row:
    """Returns a hand-written model with its sizes."""
    return Row(name, optimizer, partial(build, **sizes) if sizes else build)


def keras(name: str, optimizer: str, architecture: str) -> Row:
    """Returns a classifier that Keras ships."""
    return model(name, optimizer, keras_classifier, architecture=architecture)


def family(
    application: str, reference: str, *rows: Row, faithful: str = PUBLISHED
) -> tuple[ProgramSpec, ...]:
    """Returns programs of one application whose models one text describes."""
    return tuple(
        ProgramSpec(row.name, application, row.build, row.optimizer, faithful, reference) for row in rows
    )
