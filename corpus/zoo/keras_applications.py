"""The image classifiers that Keras ships, built without initialising a single weight.

Inside a `StatelessScope` that does not initialise, Keras variables have a shape and a dtype and no
value; the model is then a pure function of weights, states and images. Seed generators of dropout
layers are states like any other. Keras's own threefry draws would add a hundred integer instructions
per dropout layer; they are redirected to RngBitGenerator, which TPU programs use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.layers import one_hot_cross_entropy
from costbench.errors import choose

if TYPE_CHECKING:
    from jax import Array

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def _architectures() -> dict[str, tuple[Callable[..., Any], int]]:
    """Name -> (constructor, height and width of the images it was published with)."""
    from keras import applications as shipped

    return {
        "ConvNeXtBase": (shipped.ConvNeXtBase, 224),
        "ConvNeXtTiny": (shipped.ConvNeXtTiny, 224),
        "DenseNet121": (shipped.DenseNet121, 224),
        "DenseNet169": (shipped.DenseNet169, 224),
        "DenseNet201": (shipped.DenseNet201, 224),
        "EfficientNetB0": (shipped.EfficientNetB0, 224),
        "EfficientNetB1": (shipped.EfficientNetB1, 240),
        "EfficientNetB3": (shipped.EfficientNetB3, 300),
        "EfficientNetB5": (shipped.EfficientNetB5, 456),
        "EfficientNetB7": (shipped.EfficientNetB7, 600),
        "EfficientNetV2B0": (shipped.EfficientNetV2B0, 224),
        "EfficientNetV2S": (shipped.EfficientNetV2S, 384),
        "InceptionResNetV2": (shipped.InceptionResNetV2, 299),
        "InceptionV3": (shipped.InceptionV3, 299),
        "MobileNet": (shipped.MobileNet, 224),
        "MobileNetV2": (shipped.MobileNetV2, 224),
        "MobileNetV3Large": (shipped.MobileNetV3Large, 224),
        "MobileNetV3Small": (shipped.MobileNetV3Small, 224),
        "NASNetLarge": (shipped.NASNetLarge, 331),
        "NASNetMobile": (shipped.NASNetMobile, 224),
        "ResNet50": (shipped.ResNet50, 224),
        "ResNet101": (shipped.ResNet101, 224),
        "ResNet152": (shipped.ResNet152, 224),
        "ResNet50V2": (shipped.ResNet50V2, 224),
        "ResNet101V2": (shipped.ResNet101V2, 224),
        "ResNet152V2": (shipped.ResNet152V2, 224),
        "VGG16": (shipped.VGG16, 224),
        "VGG19": (shipped.VGG19, 224),
        "Xception": (shipped.Xception, 299),
    }


def keras_classifier(c: Ctx, architecture: str) -> Array:
    """One of Keras's classifiers on images of its published size, 1000 classes.

    Raises:
        ChoiceError: there is no such architecture.
    """
    # Keras chooses its backend at import and would otherwise look for TensorFlow.
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    build, size = choose(_architectures(), architecture, "architecture")
    shape, activation = (size, size, 3), None if c.train else "softmax"
    with _precision(_POLICIES[c.dtype]), _bit_generator_draws():
        with keras.StatelessScope(initialize_variables=False):
            model = build(weights=None, input_shape=shape, classifier_activation=activation)
        weights = [c.weight32(*one.shape, dtype=one.dtype) for one in model.trainable_variables]
        states = [c.state(*one.shape, dtype=one.dtype) for one in model.non_trainable_variables]
        images = c.input(c.batch, *shape)
        outputs: Array
        outputs, new_states = model.stateless_call(weights, states, images, training=c.train)
    if not c.train:
        return outputs
    c.new_states.extend(new_states)
    return one_hot_cross_entropy(outputs, c.tokens(c.batch))


@contextmanager
def _precision(policy: str) -> Iterator[None]:
    import keras

    before = keras.config.dtype_policy()
    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextmanager
def _bit_generator_draws() -> Iterator[None]:
    import jax
    import jax.numpy as jnp
    from keras.src.backend.jax import random as drawing
    from keras.src.random.seed_generator import draw_seed

    def rbg_key(seed: Any) -> Any:
        words = seed if isinstance(seed, jax.Array) else draw_seed(seed)
        return jax.random.wrap_key_data(jnp.tile(words, 2), impl="unsafe_rbg")

    before = drawing.jax_draw_seed
    drawing.jax_draw_seed = rbg_key
    try:
        yield
    finally:
        drawing.jax_draw_seed = before
