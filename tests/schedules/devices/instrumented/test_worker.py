"""Counters and reuse distances of kernels that run, beside those of an interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.devices.instrumented.worker import Arena, InstrumentedKernel, Run, Sampling
from costbench_schedules.llvm.instrumentation import instrument
from costbench_schedules.llvm.program import parse_program
from tests.schedules.devices.instrumented.interpreter import START, Interpreter, reuse_distances
from tests.schedules.llvm import kernels

KERNELS = {
    "matmul": (kernels.MATMUL, kernels.MATMUL_SIZES),
    "vectors": (kernels.VECTORS, kernels.VECTORS_SIZES),
}


def interpreted(text: str) -> Interpreter:
    program = parse_program(text, "kernel")
    interpreter = Interpreter(program)
    function = program.functions[0]
    arguments = {name: START[name] for _, name in function.parameters}
    interpreter.run(function, arguments)
    return interpreter


def ran(text: str, sizes: dict[str, int], sampling: Sampling, processor: str = "native") -> Run:
    program = parse_program(text, "kernel")
    return InstrumentedKernel(instrument(program, trace=True), Arena(program, sizes), processor).sampled(
        sampling
    )


@pytest.mark.parametrize("name", KERNELS)
def test_counts_of_edges_are_the_interpreters(name: str) -> None:
    text, sizes = KERNELS[name]
    program = parse_program(text, "kernel")
    code = instrument(program)
    outcome = ran(text, sizes, Sampling())
    expected = interpreted(text).edges
    assert dict(zip(code.edges, outcome.counts.sum(axis=0).tolist(), strict=True)) == dict(expected)


@pytest.mark.parametrize("name", KERNELS)
def test_reuse_distances_of_all_accesses_are_the_interpreters(name: str) -> None:
    text, sizes = KERNELS[name]
    program = parse_program(text, "kernel")
    sites = {
        (s.function, s.block, s.position): number for number, s in enumerate(instrument(program, True).sites)
    }
    touched = interpreted(text).touched
    # The kernel runs twice, and what counts is the second run.
    expected = reuse_distances([line for _, line in touched] * 2)[len(touched) :]
    outcome = ran(text, sizes, Sampling(every=True))
    assert outcome.touched == len(touched)
    assert outcome.samples[:, 0].tolist() == [sites[site] for site, _ in touched]
    assert outcome.samples[:, 1].tolist() == expected


def test_samples_stand_for_the_whole_run() -> None:
    text, sizes = KERNELS["matmul"]
    exact = ran(text, sizes, Sampling(every=True)).samples[:, 1]
    sampled = ran(text, sizes, Sampling(samples=400)).samples[:, 1]
    assert 300 < len(sampled) < 520
    for distance in (1, 4, 16):
        # 400 samples of a share p err by sqrt(p (1 - p) / 400), at most 2.5%; four times that is rare.
        assert abs(np.mean(sampled <= distance) - np.mean(exact <= distance)) < 0.1
    again = ran(text, sizes, Sampling(samples=400)).samples[:, 1]
    assert again.tolist() == sampled.tolist()


@pytest.mark.parametrize("name", KERNELS)
def test_features_do_not_change_with_the_instructions_that_take_them(name: str) -> None:
    text, sizes = KERNELS[name]
    native, plain = (ran(text, sizes, Sampling(every=True), item) for item in ("native", "x86-64"))
    assert native.counts.tolist() == plain.counts.tolist()
    assert native.samples.tolist() == plain.samples.tolist()


@pytest.mark.parametrize(("threads", "most"), [(1, 10), (2, 5), (4, 3), (16, 1)])
def test_parallel_tasks_have_counters_of_their_own(threads: int, most: int) -> None:
    program = parse_program(kernels.PARALLEL, "kernel")
    code = instrument(program, trace=True)
    result = InstrumentedKernel(code, Arena(program, {"out": 40})).run(threads)
    body = [number for number, edge in enumerate(code.edges) if edge[0] == "task" and edge[2] == "loop"]
    by_task = result.counts[1:, body].sum(axis=1)
    assert by_task.sum() == 10
    assert by_task.max() == most
    assert result.counts[0, body].sum() == 0
    # A store to the output and one to the workspace each, and the environment of two numbers per task.
    assert result.touched >= 20


def test_arguments_without_a_size_are_an_error() -> None:
    program = parse_program(kernels.MATMUL, "kernel")
    with pytest.raises(DataError, match="no size of argument 'right'"):
        Arena(program, {"left": 4, "out": 4})


def test_memory_of_others_is_an_error() -> None:
    text = "define void @kernel(ptr %a) {\n  %b = getelementptr i8, ptr %a, i64 -4096\n"
    text += "  %i = ptrtoint ptr %a to i64\n  %far = inttoptr i64 %i to ptr\n  store float 0.0, ptr %far\n"
    text += "  %g = load float, ptr %b\n  ret void\n}\n"
    with pytest.raises(DataError, match="4 bytes touched outside"):
        ran(text, {"a": 64}, Sampling())


def test_a_kernel_that_fails_is_an_error() -> None:
    text = "define i32 @kernel() {\n  ret i32 -1\n}\n"
    with pytest.raises(DataError, match="the kernel returns -1"):
        ran(text, {}, Sampling())
