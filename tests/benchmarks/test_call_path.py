from __future__ import annotations

from benchmarks.call_path import CallPath, call_path, dot, path_of
from costbench.compiler.kernel_arrays import kernel_arrays, kernel_lists
from costbench.target import load_target


def test_stretches_modules_and_returns_by_hand() -> None:
    path = CallPath((("a", "f"), ("a", "g"), ("b", "f"), ("a", "h"), ("b", "g"), ("c", "f")))
    assert path.stretches == ["a", "b", "a", "b", "c"]
    assert (path.modules, path.returns) == (3, 2)


def test_each_function_counts_once() -> None:
    def call() -> None:
        for _ in range(3):
            list(kernel_lists(kernel_arrays([((1,), (0,), (1,))])))

    path = call_path(call)
    assert {module for module, _ in path.functions} == {"costbench.compiler.kernel_arrays"}
    assert len(path.functions) == len(set(path.functions))
    assert (path.modules, path.returns) == (1, 0)


def test_compiled_functions_are_seen_and_put_back() -> None:
    path = path_of(dot, load_target("tpu_v3"))
    assert ("costbench.hardware.simulator", "price") in path.functions
    assert path_of(dot, load_target("tpu_v3")) == path
