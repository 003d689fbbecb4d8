"""Tensor operators as loops over affine accesses: one multiply-accumulate per point of the iteration space.

An operator computes output[...] = sum over its reduction axes of the product of its inputs, each read at
indices that are affine in the axes. That covers what AutoTVM tunes (autotvm2018, section 6): convolutions,
matrix multiplications, dense layers. Images are stored as NHWC and filters as HWIO, so the last output
dimension is contiguous in the output and in the weights. Float32 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Literal

from costbench.errors import ChoiceError, DataError, choose, nearest

Kind = Literal["spatial", "reduce"]
Shape = tuple[int, ...]
Index = tuple[tuple[str, int], ...]
"""One dimension of an index: the axes that it is a sum of, each with its coefficient."""
Sizes = Mapping[str, int]
"""Shape parameters by name."""
PADDED = ".padded"
"""End of the name of a tensor that is another one with a border of zeros."""
DTYPE = "float32"
_MAX_EXTENT = 1 << 16
_MAX_POINTS = 1 << 44


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of the operator before scheduling.

    Attributes:
        name: unique in the operator.
        extent: number of iterations.
        kind: "spatial" if it indexes the output, else "reduce".
    """

    name: str
    extent: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Access:
    """The element of a tensor that one point of the iteration space reads or writes.

    Attributes:
        tensor: name of the tensor.
        strides: axes with their coefficients in the index of each dimension of the tensor.
        write: whether the element is written.
    """

    tensor: str
    strides: tuple[Index, ...]
    write: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """A tensor operator with fixed shapes.

    Attributes:
        name: kind of operator, a key of `OPERATORS`.
        parameters: shape parameters by name.
        axes: spatial axes in the order of the output's dimensions, then reduction axes.
        tensors: shape of every tensor by name: inputs, padded inputs, output, in this order.
        accesses: reads, then the write of the output.
        padding: name of the tensor that each padded input is made from, and number of zeros
            before each of its dimensions (after it, whatever fills the shape).
    """

    name: str
    parameters: Mapping[str, int] = field(hash=False)
    axes: tuple[Axis, ...]
    tensors: Mapping[str, Shape] = field(hash=False)
    accesses: tuple[Access, ...]
    padding: Mapping[str, tuple[str, Shape]] = field(hash=False)

    @property
    def text(self) -> str:
        """Returns the operator as `parse_operator` reads it."""
        return f"{self.name}:" + ",".join(f"{key}={value}" for key, value in self.parameters.items())

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """Returns the axes that index the output."""
        return tuple(axis for axis in self.axes if axis.kind == "spatial")

    @property
    def reduce(self) -> tuple[Axis, ...]:
        """Returns the axes that are summed over."""
        return tuple(axis for axis in self.axes if axis.kind == "reduce")

    @property
    def output(self) -> str:
        """Returns the name of the tensor that is written."""
        return self.accesses[-1].tensor

    @property
    def inputs(self) -> tuple[str, ...]:
        """Returns the names of the tensors that the caller passes, in order."""
        return tuple(name for name in self.tensors if name != self.output and not name.endswith(PADDED))

    @property
    def flops(self) -> int:
        """Returns the floating-point operations: a multiplication and an addition per point."""
        return 2 * prod(axis.extent for axis in self.axes)


def _contraction(
    name: str, size: Sizes, spatial: Mapping[str, int], reduce: Mapping[str, int], **reads: str
) -> Operator:
    """Returns output[spatial] = sum over reduce of the product of tensors, read at axes by name ("i r")."""
    extents = {**spatial, **reduce}
    axes = [Axis(axis, extent, "spatial") for axis, extent in spatial.items()]
    axes += [Axis(axis, extent, "reduce") for axis, extent in reduce.items()]
    indices = {tensor: tuple(text.split()) for tensor, text in reads.items()} | {"output": tuple(spatial)}
    return Operator(
        name,
        size,
        tuple(axes),
        {tensor: tuple(extents[axis] for axis in index) for tensor, index in indices.items()},
        tuple(
            Access(tensor, tuple(((axis, 1),) for axis in index), tensor == "output")
            for tensor, index in indices.items()
        ),
        {},
    )


def _matmul(size: Sizes) -> Operator:
    """Builds output[i, j] = sum over r of left[i, r] right[r, j]."""
    spatial = {"i": size["m"], "j": size["n"]}
    return _contraction("matmul", size, spatial, {"r": size["k"]}, left="i r", right="r j")


def _batch_matmul(size: Sizes) -> Operator:
    """Builds output[b, i, j] = sum over r of left[b, i, r] right[b, r, j]."""
    spatial = {"b": size["b"], "i": size["m"], "j": size["n"]}
    return _contraction("batch_matmul", size, spatial, {"r": size["k"]}, left="b i r", right="b r j")


def _dense(size: Sizes) -> Operator:
    """Builds output[i, j] = sum over r of data[i, r] weight[j, r]: weights of one output are contiguous."""
    spatial = {"i": size["n"], "j": size["co"]}
    return _contraction("dense", size, spatial, {"r": size["ci"]}, data="i r", weight="j r")


def _convolution(name: str, size: Sizes, outputs: str, inputs: str, channels: str) -> Operator:
    """Returns a convolution: windows of an image [n, h, w, channels] slide over its rows and columns.

    Args:
        name: kind of operator.
        size: shape parameters.
        outputs: axes of the output after n, y and x.
        inputs: axes that are summed over besides the window's.
        channels: axes of the image after n, h and w.
    """
    pad, stride, kh, kw = size["pad"], size["stride"], size["kh"], size["kw"]
    h, w = size["h"] + 2 * pad, size["w"] + 2 * pad
    spatial = {"n": size["n"], "y": (h - kh) // stride + 1, "x": (w - kw) // stride + 1}
    spatial |= {axis: size[axis] for axis in outputs.split()}
    reduce = {axis: size[axis] for axis in inputs.split()} | {"kh": kh, "kw": kw}
    weight = f"kh kw {inputs} {outputs}"
    plain = _contraction(name, size, spatial, reduce, data=f"n y x {channels}", weight=weight)
    depth = tuple(size[axis] for axis in channels.split())
    image = {"data": (size["n"], size["h"], size["w"], *depth)}
    padded = {"data" + PADDED: (size["n"], h, w, *depth)} if pad else {}
    data, *others = plain.accesses
    sliding: tuple[Index, ...] = ((("y", stride), ("kh", 1)), (("x", stride), ("kw", 1)))
    read = replace(data, tensor=[*image, *padded][-1], strides=(data.strides[0], *sliding, *data.strides[3:]))
    return replace(
        plain,
        tensors=image | {"weight": plain.tensors["weight"]} | padded | {"output": plain.tensors["output"]},
        accesses=(read, *others),
        padding={name: ("data", (0, pad, pad, *(0 for _ in depth))) for name in padded},
    )


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes operators of one kind.

    Attributes:
        build: function of the parameters to the operator.
        parameters: names of the parameters, in order.
        defaults: values of those that may be left out.
    """

    build: Callable[[Sizes], Operator]
    parameters: tuple[str, ...]
    defaults: Mapping[str, int]


_CONVOLUTION = {"n": 1, "stride": 1, "pad": 0}
OPERATORS: Mapping[str, Builder] = {
    "batch_matmul": Builder(_batch_matmul, ("b", "m", "n", "k"), {}),
    # output[n, y, x, co], a sum over ci, kh and kw of
    # data[n, stride y + kh, stride x + kw, ci] weight[kh, kw, ci, co].
    "conv2d": Builder(
        partial(_convolution, "conv2d", outputs="co", inputs="ci", channels="ci"),
        ("n", "h", "w", "ci", "co", "kh", "kw", "stride", "pad"),
        _CONVOLUTION,
    ),
    "dense": Builder(_dense, ("n", "ci", "co"), {"n": 1}),
    # output[n, y, x, c], a sum over kh and kw of data[n, stride y + kh, stride x + kw, c] weight[kh, kw, c].
    "depthwise_conv2d": Builder(
        partial(_convolution, "depthwise_conv2d", outputs="c", inputs="", channels="c"),
        ("n", "h", "w", "c", "kh", "kw", "stride", "pad"),
        _CONVOLUTION,
    ),
    # output[n, y, x, g, co], a sum over ci, kh and kw; ci and co are channels of one group, in memory NHWC
    # and HWIO, of data[n, stride y + kh, stride x + kw, g, ci] weight[kh, kw, ci, g, co].
    "grouped_conv2d": Builder(
        partial(_convolution, "grouped_conv2d", outputs="g co", inputs="ci", channels="g ci"),
        ("n", "h", "w", "g", "ci", "co", "kh", "kw", "stride", "pad"),
        _CONVOLUTION,
    ),
    "matmul": Builder(_matmul, ("m", "n", "k"), {}),
}


def _resnet(size: int, ci: int, co: int, window: int, stride: int) -> str:
    image = f"n=1,h={size},w={size},ci={ci},co={co}"
    return f"conv2d:{image},kh={window},kw={window},stride={stride},pad={window // 2}"


WORKLOADS: Mapping[str, str] = {
    # The convolutions of ResNet-18 for one image (autotvm2018, Table 1).
    "C1": _resnet(224, 3, 64, 7, 2),
    "C2": _resnet(56, 64, 64, 3, 1),
    "C3": _resnet(56, 64, 64, 1, 1),
    "C4": _resnet(56, 64, 128, 3, 2),
    "C5": _resnet(56, 64, 128, 1, 2),
    "C6": _resnet(28, 128, 128, 3, 1),
    "C7": _resnet(28, 128, 256, 3, 2),
    "C8": _resnet(28, 128, 256, 1, 2),
    "C9": _resnet(14, 256, 256, 3, 1),
    "C10": _resnet(14, 256, 512, 3, 2),
    "C11": _resnet(14, 256, 512, 1, 2),
    "C12": _resnet(7, 512, 512, 3, 1),
    "matmul-256": "matmul:m=256,n=256,k=256",
    "matmul-512": "matmul:m=512,n=512,k=512",
    "matmul-1024": "matmul:m=1024,n=1024,k=1024",
    # A depthwise layer as in MobileNet, ResNet-18's classifier for 16 images, attention scores of BERT.
    "depthwise-256": "depthwise_conv2d:n=1,h=28,w=28,c=256,kh=3,kw=3,stride=1,pad=1",
    "dense-512": "dense:n=16,ci=512,co=1000",
    "batch-matmul-12": "batch_matmul:b=12,m=128,n=128,k=64",
}
"""Named workloads; one more is one more line."""


def parse_operator(text: str) -> Operator:
    """Returns the operator that a workload's name or a description stands for.

    >>> parse_operator("matmul:m=64,n=32,k=16").flops
    65536

    Args:
        text: a key of `WORKLOADS`, or "operator:name=integer,...", where parameters with a default may be
            left out.

    Raises:
        ChoiceError: for an unknown operator, listing operators and workloads.
        DataError: naming the parameter, if one is missing, unknown, given twice or no possible size.
    """
    text = WORKLOADS.get(text, text)
    name, _, rest = text.partition(":")
    if not rest and name not in OPERATORS:
        known = ", ".join([*WORKLOADS, *(f"{kind}:..." for kind in OPERATORS)])
        near = nearest(text, [*WORKLOADS, *OPERATORS])
        raise ChoiceError(f"unknown workload {text!r}{near}", expected=f"one of {known}")
    builder = choose(OPERATORS, name, "operator")
    values = dict(builder.defaults) | _parsed(text, rest, builder)
    for key in builder.parameters:
        if key not in values:
            wanted = ", ".join(builder.parameters)
            raise DataError("missing", where=text, field=key, expected=f"the parameters {wanted}")
    operator = builder.build({key: values[key] for key in builder.parameters})
    _check(operator, text)
    return operator


def _parsed(text: str, rest: str, builder: Builder) -> dict[str, int]:
    values: dict[str, int] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = (piece.strip() for piece in part.partition("="))
        lowest = 0 if key == "pad" else 1
        if key not in builder.parameters or key in values:
            problem = "given twice" if key in values else "no parameter"
            raise DataError(problem, where=text, field=key, expected=", ".join(builder.parameters))
        if not value.isascii() or not value.isdecimal() or not lowest <= int(value) <= _MAX_EXTENT:
            expected = f"an integer from {lowest} to {_MAX_EXTENT}"
            raise DataError(f"{value!r}", where=text, field=key, expected=expected)
        values[key] = int(value)
    return values


def _check(operator: Operator, text: str) -> None:
    for axis in operator.axes:
        if axis.extent < 1:
            raise DataError("the window is larger than the padded image", where=text, field=axis.name)
    if operator.flops > _MAX_POINTS:
        raise DataError(f"{operator.flops} operations", where=text, expected=f"at most {_MAX_POINTS}")
