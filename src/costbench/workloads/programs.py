"""The corpus as one table: which model, at which batch, step and precision, under which optimiser.

A program's name says the last three (`<stem>_b<batch>_<step>_<dtype>`), so they are not repeated.
Adding a program is one row here, and one function in `zoo` if its model is new.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from costbench.errors import ChoiceError, choose
from costbench.workloads.context import Ctx
from costbench.workloads.zoo import bert, convnets, recurrent
from costbench.workloads.zoo.keras_applications import keras_classifier

PUBLISHED = "published sizes"
GUESSED = "inside not public, guessed"
STAND_IN = "namesake: published parts, arrangement guessed"

_NAME = re.compile(r"^[a-z][a-z0-9_]*_b(?P<batch>\d+)_(?P<step>train|infer)_(?P<dtype>f32|bf16)$", re.IGNORECASE)


@dataclass(frozen=True)
class ProgramSpec:
    """How one program is made.

    Attributes:
        name: `<stem>_b<batch>_<step>_<dtype>`.
        application: family that the by-application split keeps together.
        build: the model, a function of a `Ctx`.
        optimizer: a name of `OPTIMIZERS`; empty for inference.
        faithful: where the layer sizes come from.
    """

    name: str
    application: str
    build: Callable[[Ctx], Any]
    optimizer: str
    faithful: str

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
        """Examples per step."""
        return int(self._part("batch"))

    @property
    def step(self) -> str:
        """`train` or `infer`."""
        return self._part("step")

    @property
    def dtype(self) -> str:
        """Compute dtype, `f32` or `bf16`."""
        return self._part("dtype")

    @property
    def builder(self) -> str:
        """Name of the zoo's function with what it is given, for the manifest."""
        if isinstance(self.build, partial):
            given = [repr(one) for one in self.build.args]
            given += [f"{key}={value!r}" for key, value in self.build.keywords.items()]
            return f"{self.build.func.__name__}({', '.join(given)})"
        return f"{self.build.__name__}()"

    @property
    def source(self) -> str:
        """`keras` for the models that Keras ships, `jax` for the hand-written ones."""
        return "keras" if self.builder.startswith(keras_classifier.__name__) else "jax"

    def context(self) -> Ctx:
        """A fresh recording context for this program."""
        return Ctx(self.batch, self.step == "train", self.dtype)


def _keras(name: str, application: str, optimizer: str, architecture: str) -> ProgramSpec:
    return ProgramSpec(
        name, application, partial(keras_classifier, architecture=architecture), optimizer, PUBLISHED
    )


_resnet, _ptb, _nmt = (partial(partial, one) for one in (convnets.resnet, recurrent.ptb_lstm, recurrent.nmt))

SPECS: tuple[ProgramSpec, ...] = (
    # Image classifiers
    _keras("resnet50_b64_infer_bf16", "ResNet v1", "", "ResNet50"),
    _keras("resnet50_b64_train_f32", "ResNet v1", "momentum", "ResNet50"),
    ProgramSpec("resnet_v1_18_cifar_b128_train_f32", "ResNet v1", partial(convnets.resnet_cifar, blocks=3), "momentum", PUBLISHED),
    ProgramSpec("resnet_v1_34_b128_train_bf16", "ResNet v1", _resnet(depth=34, version=1), "momentum", PUBLISHED),
    _keras("resnet50v2_b64_infer_f32", "ResNet v2", "", "ResNet50V2"),
    ProgramSpec("resnet_v2_18_b64_train_f32", "ResNet v2", _resnet(depth=18, version=2), "momentum", PUBLISHED),
    ProgramSpec("resnet_v2_34_b128_infer_bf16", "ResNet v2", _resnet(depth=34, version=2), "", PUBLISHED),
    ProgramSpec("alexnet_b128_train_f32", "AlexNet", convnets.alexnet, "momentum", PUBLISHED),
    # Language
    ProgramSpec("small_bert_L2_H128_b64_train_bf16", "BERT", partial(bert.bert_classifier, layers=2, features=128), "adam", PUBLISHED),
    ProgramSpec("small_bert_L4_H512_b64_infer_bf16", "BERT", partial(bert.bert_classifier, layers=4, features=512), "", PUBLISHED),
    ProgramSpec("nmt_b128_train_bf16", "NMT Model", _nmt(), "adam_clipped", PUBLISHED),
    ProgramSpec("nmt_b32_infer_f32", "NMT Model", _nmt(hidden=512, layers=2), "", PUBLISHED),
    ProgramSpec("rnn_ptb_lstm_b20_train_f32", "RNN", _ptb(hidden=650), "sgd_clipped", PUBLISHED),
    ProgramSpec("rnn_char_b64_infer_f32", "RNN", recurrent.char_rnn, "", PUBLISHED),
)


def specs_by_name() -> dict[str, ProgramSpec]:
    """The table by name."""
    return {spec.name: spec for spec in SPECS}


def find_spec(name: str) -> ProgramSpec:
    """The row called `name`.

    Raises:
        ChoiceError: listing the names, if there is none.
    """
    return choose(specs_by_name(), name, "program")
