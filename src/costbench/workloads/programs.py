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
from costbench.workloads.zoo import (
    bert,
    convnets,
    detection,
    embedders,
    generative,
    recommenders,
    recurrent,
    tacotron,
    transformers,
    vocoders,
)
from costbench.workloads.zoo.keras_applications import keras_classifier

PUBLISHED = "published sizes"
GUESSED = "inside not public, guessed"
STAND_IN = "namesake: published parts, arrangement guessed"

_NAME = re.compile(
    r"^[a-z][a-z0-9_]*_b(?P<batch>\d+)_(?P<step>train|infer)_(?P<dtype>f32|bf16)$", re.IGNORECASE
)


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


def _row(
    name: str,
    application: str,
    optimizer: str,
    build: Callable[..., Any],
    faithful: str = PUBLISHED,
    **sizes: Any,
) -> ProgramSpec:
    return ProgramSpec(name, application, partial(build, **sizes) if sizes else build, optimizer, faithful)


# fmt: off
SPECS: tuple[ProgramSpec, ...] = (
    # Image classifiers
    _keras("resnet50_b64_infer_bf16", "ResNet v1", "", "ResNet50"),
    _keras("resnet50_b64_train_f32", "ResNet v1", "momentum", "ResNet50"),
    _row("resnet_v1_18_cifar_b128_train_f32", "ResNet v1", "momentum", convnets.resnet_cifar, blocks=3),
    _row("resnet_v1_34_b128_train_bf16", "ResNet v1", "momentum", convnets.resnet, depth=34, version=1),
    _keras("resnet50v2_b64_infer_f32", "ResNet v2", "", "ResNet50V2"),
    _keras("resnet50v2_b128_train_bf16", "ResNet v2", "momentum", "ResNet50V2"),
    _row("resnet_v2_18_b64_train_f32", "ResNet v2", "momentum", convnets.resnet, depth=18, version=2),
    _row("resnet_v2_34_b128_infer_bf16", "ResNet v2", "", convnets.resnet, depth=34, version=2),
    _keras("inceptionv3_b64_infer_bf16", "Inception", "", "InceptionV3"),
    _keras("inceptionv3_b128_train_bf16", "Inception", "momentum", "InceptionV3"),
    _keras("efficientnetb0_b64_infer_bf16", "EfficientNet", "", "EfficientNetB0"),
    _keras("efficientnetb0_b128_train_bf16", "EfficientNet", "rmsprop", "EfficientNetB0"),
    _keras("mobilenet_b32_infer_f32", "MobileNet", "", "MobileNet"),
    _keras("mobilenet_b128_train_bf16", "MobileNet", "momentum", "MobileNet"),
    _keras("mobilenetv2_b32_infer_bf16", "MobileNet", "", "MobileNetV2"),
    _keras("densenet201_b32_infer_bf16", "DenseNet", "", "DenseNet201"),
    _keras("vgg16_b64_train_bf16", "VGG", "momentum", "VGG16"),
    _keras("vgg19_b64_infer_f32", "VGG", "", "VGG19"),
    _row("alexnet_b128_train_f32", "AlexNet", "momentum", convnets.alexnet),
    _row("vit_b16_b32_infer_bf16", "ViT", "", transformers.vision_transformer, layers=12, features=768),
    # Image embedding, detection, segmentation, generation
    _row("image_embed_b32_train_bf16", "ImageEmbed", "momentum", embedders.image_embed, GUESSED),
    _row("image_embed_b16_infer_bf16", "ImageEmbed", "", embedders.image_embed, GUESSED),
    _row("ssd_resnet34_b32_train_bf16", "SSD", "momentum", detection.ssd),
    _row("ssd_resnet34_b8_infer_f32", "SSD", "", detection.ssd),
    _row("ssd_512_b8_train_f32", "SSD", "momentum", detection.ssd, size=512),
    _row("unet2d_b8_train_f32", "UNet", "adam", generative.unet),
    _row("unet3d_b1_infer_bf16", "UNet", "", generative.unet, size=128, rank=3, base=32, classes=3),
    _row("ddpm_64_b8_infer_bf16", "Diffusion", "", generative.ddpm, size=64),
    _row("convdraw_b64_train_f32", "ConvDRAW", "adam", generative.convdraw, STAND_IN),
    _row("convdraw_b16_infer_f32", "ConvDRAW", "", generative.convdraw, STAND_IN),
    # Language
    _row("small_bert_L2_H128_b64_train_bf16", "BERT", "adam", bert.bert_classifier, layers=2, features=128),
    _row("small_bert_L4_H512_b64_infer_bf16", "BERT", "", bert.bert_classifier, layers=4, features=512),
    _row("small_bert_L4_H256_b32_train_bf16", "BERT", "adam", bert.bert_pretraining, layers=4, features=256),
    _row("transformer_base_b64_train_bf16", "Transformer", "adam", transformers.transformer),
    _row("transformer_lm_b8_train_bf16", "Transformer", "adam", transformers.transformer_lm,
         layers=6, features=512, vocabulary=32000, steps=256),
    _row("gpt2_small_b8_infer_bf16", "Transformer", "", transformers.transformer_lm,
         layers=12, features=768, vocabulary=50257, steps=512),
    _row("translate_1_b32_infer_bf16", "Translate", "", transformers.translate, STAND_IN),
    _row("translate_2_b8_infer_f32", "Translate", "", transformers.translate, STAND_IN,
         sizes=transformers.IWSLT, beams=5),
    _row("translate_3_b128_train_f32", "Translate", "adam", transformers.transformer, STAND_IN,
         sizes=transformers.IWSLT, steps=32),
    _row("nmt_b128_train_bf16", "NMT Model", "adam_clipped", recurrent.nmt),
    _row("nmt_small_b64_train_f32", "NMT Model", "adam_clipped", recurrent.nmt, hidden=512, layers=4),
    _row("nmt_b32_infer_f32", "NMT Model", "", recurrent.nmt, layers=4),
    _row("rnn_ptb_lstm_b20_train_f32", "RNN", "sgd_clipped", recurrent.ptb_lstm, hidden=650),
    _row("rnn_large_lstm_b64_train_bf16", "RNN", "sgd_clipped", recurrent.ptb_lstm, hidden=1500),
    _row("rnn_gru_b128_train_f32", "RNN", "adam", recurrent.gru_lm, STAND_IN),
    _row("rnn_char_b64_infer_f32", "RNN", "", recurrent.char_rnn, STAND_IN),
    _row("smartcompose_b8_infer_f32", "SmartCompose", "", recommenders.smartcompose, STAND_IN),
    _row("smartcompose_b256_train_bf16", "SmartCompose", "adam", recommenders.smartcompose, STAND_IN),
    # Speech
    _row("wavernn_1_b8_train_f32", "WaveRNN", "adam", vocoders.wavernn),
    _row("wavernn_2_b32_train_bf16", "WaveRNN", "adam", vocoders.wavernn, STAND_IN, size=512, features=128),
    _row("wavernn_3_b1_infer_bf16", "WaveRNN", "", vocoders.wavernn_sampling),
    _row("feats2wave_wavenet_b2_train_f32", "Feats2Wave", "adam", vocoders.wavenet, STAND_IN),
    _row("feats2wave_hifigan_b4_infer_f32", "Feats2Wave", "", vocoders.hifigan),
    _row("char2feats_b32_train_f32", "Char2Feats", "adam", tacotron.char2feats_training),
    _row("char2feats_b8_infer_bf16", "Char2Feats", "", tacotron.char2feats_inference),
    # Recommendation
    _row("dlrm_b2048_train_f32", "DLRM", "sgd", recommenders.dlrm),
    _row("dlrm_b2048_infer_f32", "DLRM", "", recommenders.dlrm),
    _row("ranking_b32_train_f32", "Ranking", "adam", recommenders.ranking, GUESSED),
    _row("ranking_b16_infer_f32", "Ranking", "", recommenders.ranking, GUESSED),
)
# fmt: on


def specs_by_name() -> dict[str, ProgramSpec]:
    """The table by name."""
    return {spec.name: spec for spec in SPECS}


def find_spec(name: str) -> ProgramSpec:
    """The row called `name`.

    Raises:
        ChoiceError: listing the names, if there is none.
    """
    return choose(specs_by_name(), name, "program")
