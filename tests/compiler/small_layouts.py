"""Small programs whose layouts can be worked out by hand."""

from __future__ import annotations

import numpy as np

from costbench.arrays import I8, I16
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.hlo.instruction import WindowDimension
from costbench.hlo.module import HloModule
from tests.hlo.builder import ModuleBuilder

SAME = (WindowDimension(3, padding_low=1, padding_high=1),) * 2


def dot_and_add() -> HloModule:
    """A product of matrices, to which an argument is added: f32[64,512]."""
    b = ModuleBuilder("dot_and_add")
    product = b.dot(b.parameter("f32[64,256]"), b.parameter("f32[256,512]"))
    return b.build(b.op("add", product, b.parameter("f32[64,512]")))


def two_convolutions() -> HloModule:
    """Two alike convolutions of 32 images, 8 x 8, 128 features, with rectifiers; then made flat."""
    b = ModuleBuilder("two_convolutions")
    value = b.parameter("f32[32,8,8,128]")
    for _ in range(2):
        value = b.convolution(value, b.parameter("f32[3,3,128,128]"), windows=SAME)
        value = b.op("maximum", value, b.broadcast(b.constant("f32[]"), "f32[32,8,8,128]"))
    return b.build(b.reshape(value, "f32[32,64,128]"))


def space_of(module: HloModule) -> LayoutSpace:
    """The layout configs of a program."""
    return layout_space(module)


def layout_features(space: LayoutSpace, configs: I16) -> I8:
    """TpuGraphs' 18 features of every configurable node, int8 [n, m, 18]; see `option_features`."""
    configs = np.asarray(configs)
    features = np.full((*configs.shape, 18), -1, dtype=np.int8)
    for k, node in enumerate(space.nodes):
        features[:, k] = option_features(node)[configs[:, k]]
    return features
