from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from costbench.compiler.fusion.reads import ReadGraph
from costbench.compiler.fusion.views import body_arrays
from costbench.compiler.identity.fingerprints import KernelFingerprints
from costbench.compiler.identity.hashes import labels_of
from costbench.compiler.kernel import Kernel
from costbench.hlo.builder import ModuleBuilder
from costbench.hlo.fingerprint import ModuleFingerprints
from tests.compiler import small_kernels as small
from tests.compiler.lowering.test_kernel_batches import as_arrays
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS


def fingerprints(*found: Kernel) -> list[str]:
    """Of kernels of one computation, twice the same."""
    first = found[0]
    program = ModuleFingerprints(first.module)
    body, labels = body_arrays(ReadGraph(first.body)), labels_of(program, first.computation)
    made = KernelFingerprints(program, first.computation, body, labels)
    names = made.of(as_arrays(found))
    assert made.of(as_arrays(found)) == names
    return [name.hex() for name in names]


@pytest.mark.parametrize("name", KERNELS)
def test_fingerprints_are_those_of_single_kernels(name: str) -> None:
    kernel = KERNELS[name]()
    assert fingerprints(kernel, kernel) == [kernel.fingerprint] * 2


@given(kernels())
def test_so_they_are_of_any_kernel(kernel: Kernel) -> None:
    assert fingerprints(kernel) == [kernel.fingerprint]


def parts_of(kernel: Kernel, parts: Sequence[tuple[int, ...]]) -> list[Kernel]:
    body = kernel.body
    return [
        Kernel(
            kernel.module,
            kernel.computation,
            part,
            tuple(sorted({o for p in part for o in body.instructions[p].operands} - set(part))),
            part[-1:],
        )
        for part in parts
    ]


def test_kernels_that_share_instructions_do_not_mix() -> None:
    kernel = small.unary(times=4)
    chain = kernel.instructions
    parts = parts_of(kernel, [chain, chain[:2], chain[1:3], chain[:1], chain[3:]])
    expected = [part.fingerprint for part in parts]
    assert fingerprints(*parts) == expected
    assert expected[1] == expected[2] != expected[0]


def test_many_readers_of_one_value_are_told_by_their_places() -> None:
    b = ModuleBuilder()
    shared = b.parameter("f32[64]")
    total = shared
    for _ in range(40):
        total = b.op("add", b.op("multiply", shared, total), b.op("subtract", total, shared))
    kernel = small.finish(b, total)
    assert fingerprints(kernel) == [kernel.fingerprint]
