"""The vendor library: what torch with oneDNN takes for an operator, on one thread, timed as schedules are.

This is what autotvm2018 (Figure 10) compares tuned operators with. Images are passed as our operators have
them, channels last; filters channels last as well, and in oneDNN's own blocked layout. The conversions are
made before the clock starts, so they are no part of the time; the faster way counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn import functional

from costbench.arrays import F32
from costbench.artifacts import write_json
from costbench.errors import DataError, choose
from costbench_schedules.devices.host import this_processor
from costbench_schedules.devices.timing import TimingSpec, time_call
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.operators.reference import TOLERANCE, expected_output, inputs_of, largest_error

FORMAT = "costbench library times 1"
Call = Callable[[], torch.Tensor]
ROUNDS = 3
REMARK = (
    "torch with oneDNN, one thread, float32, inference mode; layout conversions of inputs and weights are "
    "made before and not timed; of several ways to call the library the fastest counts"
)


@dataclass(frozen=True)
class LibraryTime:
    """The library's time for an operator.

    Attributes:
        operator: description that `parse_operator` reads.
        runtime_ns: median runtime of the fastest way to call it, over the rounds.
        gflops: 10^9 operations a second.
        way: name of that way.
        ways: median runtime in ns of each way.
        spread: largest over smallest round of the fastest way, minus 1.
    """

    operator: str
    runtime_ns: float
    gflops: float
    way: str
    ways: Mapping[str, float]
    spread: float


def _matmul(_: Mapping[str, int], left: torch.Tensor, right: torch.Tensor) -> dict[str, Call]:
    output = torch.empty(left.shape[0], right.shape[1])
    return {"mm": lambda: torch.mm(left, right, out=output)}


def _batch_matmul(_: Mapping[str, int], left: torch.Tensor, right: torch.Tensor) -> dict[str, Call]:
    output = torch.empty(left.shape[0], left.shape[1], right.shape[2])
    return {"bmm": lambda: torch.bmm(left, right, out=output)}


def _dense(_: Mapping[str, int], data: torch.Tensor, weight: torch.Tensor) -> dict[str, Call]:
    return {"linear": lambda: functional.linear(data, weight)}


def _conv2d(size: Mapping[str, int], data: torch.Tensor, weight: torch.Tensor) -> dict[str, Call]:
    return _convolution(size, data, weight.permute(3, 2, 0, 1), 1)


def _depthwise(size: Mapping[str, int], data: torch.Tensor, weight: torch.Tensor) -> dict[str, Call]:
    return _convolution(size, data, weight.permute(2, 0, 1)[:, None], size["c"])


def _grouped(size: Mapping[str, int], data: torch.Tensor, weight: torch.Tensor) -> dict[str, Call]:
    groups, channels = size["g"], size["co"]
    ways = _convolution(size, data.flatten(3), weight.permute(3, 4, 2, 0, 1).flatten(0, 1), groups)

    def split(call: Call) -> Call:
        def of_groups() -> torch.Tensor:
            output = call()
            return output.reshape(*output.shape[:3], groups, channels)

        return of_groups

    return {name: split(call) for name, call in ways.items()}


def _convolution(
    size: Mapping[str, int], data: torch.Tensor, weight: torch.Tensor, groups: int
) -> dict[str, Call]:
    """Returns calls whose results are NHWC; `weight` is OIHW."""
    stride, pad = [size["stride"]] * 2, [size["pad"]] * 2
    image = data.permute(0, 3, 1, 2)
    last = weight.contiguous(memory_format=torch.channels_last)

    def plain() -> torch.Tensor:
        return functional.conv2d(image, last, None, stride, pad, 1, groups).permute(0, 2, 3, 1)

    ways: dict[str, Call] = {"channels last": plain}
    if torch._C._has_mkldnn:  # noqa: SLF001 - `is_available` says no more and has no types
        # What torch's own compiler calls; the functional interface converts the filter at every call.
        reorder = torch.ops.mkldnn._reorder_convolution_weight  # noqa: SLF001
        convolve = torch.ops.mkldnn._convolution_pointwise  # noqa: SLF001
        blocked = reorder(weight.contiguous(), pad, stride, [1, 1], groups, list(image.shape))

        def packed() -> torch.Tensor:
            output: torch.Tensor = convolve(image, blocked, None, pad, stride, [1, 1], groups, "none", [], "")
            return output.permute(0, 2, 3, 1)

        ways["filter in oneDNN's layout"] = packed
    return ways


_CALLS: Mapping[str, Callable[..., dict[str, Call]]] = {
    "batch_matmul": _batch_matmul,
    "conv2d": _conv2d,
    "dense": _dense,
    "depthwise_conv2d": _depthwise,
    "grouped_conv2d": _grouped,
    "matmul": _matmul,
}
"""How the library is called for each kind of operator; tensors are in our layouts."""


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def library_calls(operator: Operator, inputs: Sequence[F32]) -> dict[str, Call]:
    """Returns the ways to call the library for an operator; they return the output in our layout.

    Call them in inference mode and on one thread, as `library_times` does.

    Raises:
        ChoiceError: for an operator that the library is not called for.
        DataError: if a way computes something else.
    """
    make = choose(_CALLS, operator.name, "operator of the library")
    with _one_thread():
        ways = make(operator.parameters, *(torch.from_numpy(array) for array in inputs))
        expected = expected_output(operator, list(inputs))
        for name, call in ways.items():
            wrong = largest_error(np.asarray(call().numpy()), expected)
            if not wrong <= TOLERANCE:
                raise DataError(f"{name}: relative error {wrong:.3g}", where=operator.text)
    return ways


def library_times(
    workloads: Sequence[str],
    timing: TimingSpec | None = None,
    rounds: int = ROUNDS,
    report: Callable[[str, LibraryTime], None] = lambda name, library: None,
) -> dict[str, LibraryTime]:
    """Returns the library's time for each workload.

    Args:
        workloads: names or descriptions.
        timing: length and number of measurements, as for schedules.
        rounds: number of times that each way is timed.
        report: function that is called with each workload and its time.

    Raises:
        ChoiceError: for an unknown workload, or an operator that the library is not called for.
        DataError: if the library computes something else.
    """
    library = {}
    for workload in workloads:
        operator = parse_operator(workload)
        ways = library_calls(operator, inputs_of(operator))
        spec = timing or TimingSpec()
        times: dict[str, list[float]] = {name: [] for name in ways}
        with _one_thread():
            for _ in range(rounds):
                for name, call in ways.items():
                    times[name].append(time_call(call, spec).runtime_ns)
        medians = {name: float(median(rounds_ns)) for name, rounds_ns in times.items()}
        way = min(medians, key=lambda name: medians[name])
        library[workload] = LibraryTime(
            operator.text,
            medians[way],
            operator.flops / medians[way],
            way,
            medians,
            max(times[way]) / min(times[way]) - 1.0,
        )
        report(workload, library[workload])
    return library


def write_library_times(path: Path, times: Mapping[str, LibraryTime], timing: TimingSpec) -> None:
    """Writes times as JSON, with processor and versions. Raises: DataError if that is impossible."""
    onednn = re.search(r"(?:oneDNN|MKL-DNN\)?) v([\d.]+)", torch.__config__.show())
    content = {
        "format": FORMAT,
        "remark": REMARK,
        **{f"processor_{key}": value for key, value in asdict(this_processor()).items()},
        "versions": {"torch": torch.__version__, "onednn": onednn[1] if onednn else "none"},
        "timing": asdict(timing),
        "rounds": ROUNDS,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "workloads": {name: asdict(library_time) for name, library_time in times.items()},
    }
    write_json(path, content)
