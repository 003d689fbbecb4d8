"""Training steps a second on a GPU, against one thread of a processor: same weights, batches and run.

    python -m benchmarks.gpu_steps [--tasks tile fusion] [--hidden 64 512] [--json]

A step is everything from samples to new weights: collating, transfer, forward, loss, backward, fused Adam, in
fp32. Tile: 8 random kernels x 32 tile sizes, fusion: 128 random kernels, layout: 16 configs of a program of
10,000 nodes, 500 of them configurable, through the whole graph and through a segment of 5,000 nodes. The
processor computes networks by compiled kernels where there are any for their width, as in training. The
median of the steps counts, wall time; the first one warms up.

`{task}/{hidden}/{gpu,cpu}_steps_per_s` and their `ratio`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise, product

import torch

from benchmarks.synthetic_kernels import kernels
from benchmarks.synthetic_layouts import random_graph
from benchmarks.tpugraphs_throughput import LAYOUT_SIZES, LayoutWork, training
from costbench.features.packed_kernels import pack_kernels
from costbench.models.execution import apply_execution, describe_execution
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import Execution, NetSpec

BATCHES = {"tile": (8, 32), "fusion": (128, 1)}
NUM_BATCHES, WARM_UP, MIN_STEPS, SECONDS = 8, 1, 3, 3.0
EXECUTION = Execution(threads=1)

Step = Callable[[], object]


def kernel_steps(task: str, hidden: int, device: torch.device) -> Step:
    """Returns training steps of the default network of a task, one batch after another."""
    num_kernels, configs = BATCHES[task]
    samples = kernels(0, NUM_BATCHES * num_kernels, configs)
    spec = NetSpec(hidden=hidden, opcode_embedding=256)
    scaling = FeatureScaling.fit(samples)
    net = LearnedCostNet(spec, scaling.sizes).to(device)
    collator = Collator(scaling, spec.max_neighbors)
    bounds = pairwise(range(0, len(samples) + 1, num_kernels))
    batches = [
        pack_kernels(
            [one.graph for one in samples[start:stop]],
            [one.config_features for one in samples[start:stop]],
            [one.runtime_ns for one in samples[start:stop]],
        )
        for start, stop in bounds
    ]
    # Fusions are compared with each other, as they have one decision each.
    runtimes = [torch.from_numpy(batch.runtime_ns).to(device) for batch in batches]
    steps = [
        training(
            net,
            lambda batch=batch: net(collator.collate(batch).to(device)),
            runtime_ns.view(num_kernels, configs) if configs > 1 else runtime_ns.view(1, -1),
        )
        for batch, runtime_ns in zip(batches, runtimes, strict=True)
    ]
    return _in_turn(cycle(steps))


def _in_turn(steps: Iterator[Step]) -> Step:
    def step() -> None:
        next(steps)()

    return step


def layout_steps(task: str, hidden: int, device: torch.device) -> Step:
    """Returns training steps of a layout network."""
    work = LayoutWork(random_graph(0, *LAYOUT_SIZES), hidden, device)
    return work.segment() if task == "layout-segment" else work.full()


TASKS: dict[str, Callable[[str, int, torch.device], Step]] = {
    "tile": kernel_steps,
    "fusion": kernel_steps,
    "layout": layout_steps,
    "layout-segment": layout_steps,
}


def steps_per_s(task: str, hidden: int, name: str) -> float:
    """Returns the training steps a second on a device, from the median of those of some seconds."""
    device = torch.device(name)
    with apply_execution(EXECUTION):
        step = TASKS[task](task, hidden, device)
        seconds: list[float] = []
        deadline = time.perf_counter() + SECONDS
        while len(seconds) < WARM_UP + MIN_STEPS or time.perf_counter() < deadline:
            started = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    return 1.0 / statistics.median(seconds[WARM_UP:])


def measure(task: str, hidden: int) -> Iterator[tuple[str, float]]:
    """Yields the speeds of a task at one width, by name: the GPU's first, if there is one."""
    devices = {"gpu": "cuda", "cpu": "cpu"} if torch.cuda.is_available() else {"cpu": "cpu"}
    speeds: dict[str, float] = {}
    for name, device in devices.items():
        speeds[name] = steps_per_s(task, hidden, device)
        yield f"{task}/{hidden}/{name}_steps_per_s", speeds[name]
    if "gpu" in speeds:
        yield f"{task}/{hidden}/ratio", speeds["gpu"] / speeds["cpu"]


def main() -> None:
    """Prints a table, or one flat JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="what is trained")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 512], help="widths of the layers")
    parser.add_argument("--json", action="store_true", help="print {task}/{hidden}/{metric}: value")
    arguments = parser.parse_args()
    results: dict[str, float] = {}
    for task, hidden in product(arguments.tasks, arguments.hidden):
        for name, value in measure(task, hidden):
            results[name] = value
            if not arguments.json:
                print(f"{name:40} {value:10,.1f}", flush=True)
    if arguments.json:
        print(json.dumps(results, indent=1, sort_keys=True))
    elif torch.cuda.is_available():
        print(describe_execution(EXECUTION, torch.device("cuda")))
    else:
        print("no CUDA GPU here: the processor alone")


if __name__ == "__main__":
    main()
