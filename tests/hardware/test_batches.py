from __future__ import annotations

import numpy as np
import pytest

from costbench.compiler.kernel import Kernel
from costbench.compiler.tile_space import tile_space
from costbench.hardware.batches import measure_batch, structure_keys
from costbench.hardware.codegen import structure_key
from costbench.hardware.device import Device
from costbench.target import Target, load_target
from tests.compiler import small_kernels as small
from tests.compiler.small_kernels import KERNELS
from tests.compiler.test_tile_space import lowered
from tests.hardware.machines import changed, machine

V3 = load_target("tpu_v3")


def assert_measured_alike(target: Target, kernel: Kernel) -> bool:
    """A batch of one kernel three times, at its first, middle and last legal tile; whether any failed."""
    device, space = Device(target, seed=5), tile_space(kernel, target.architecture)
    ids = space.legal_ids()[[0, -1, len(space.legal_ids()) // 2]]
    extents = space.extents(ids)
    batch = lowered(kernel, kernel, kernel)
    room = np.zeros((3, batch.most_loops), dtype=np.int64)
    room[:, : extents.shape[1]] = extents
    together = measure_batch(device, batch.lowered, np.arange(3), room, [kernel.fingerprint] * 3)
    alone = device.measure_nest(space.nest, extents)
    assert together.runtime_ns.tolist() == alone.runtime_ns.tolist()
    assert together.failed.tolist() == alone.failed.tolist()
    assert together.run_seconds.tolist() == alone.run_seconds.tolist()
    return bool(alone.failed.any())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_of_a_batch_takes_as_long_as_alone(name: str) -> None:
    assert_measured_alike(V3, KERNELS[name]())


def test_so_it_does_without_irregular_code() -> None:
    assert_measured_alike(machine(iteration_ns=100.0), small.convolution())


def test_compiles_fail_as_they_do_alone() -> None:
    failing = changed(V3, failure_rate=1.0, failure_floor=1e-3)
    failed = [assert_measured_alike(failing, KERNELS[name]()) for name in KERNELS]
    assert any(failed)


def test_kernels_that_are_not_chosen_are_not_run() -> None:
    kernel = small.elementwise()
    space = tile_space(kernel, V3.architecture)
    batch = lowered(kernel, kernel)
    extents = space.extents(np.array([1]))
    found = measure_batch(Device(V3), batch.lowered, np.array([1]), extents, [kernel.fingerprint])
    assert found.runtime_ns.tolist() == Device(V3).measure_nest(space.nest, extents).runtime_ns.tolist()


def test_a_machine_that_prices_nonsense_is_found_out() -> None:
    endless = machine(launch_ns=float("inf"))
    kernel = small.elementwise()
    extents = tile_space(kernel, V3.architecture).extents(np.array([0]))
    with pytest.raises(FloatingPointError, match="priced a kernel at inf ns"):
        measure_batch(Device(endless), lowered(kernel).lowered, np.array([0]), extents, [kernel.fingerprint])


def test_structure_keys_tell_mixes_of_operations_apart() -> None:
    kernel = small.two_results()
    part = Kernel(kernel.module, kernel.computation, kernel.instructions[:1], kernel.inputs, (1,))
    batch = lowered(kernel, part, kernel).lowered
    opcodes = kernel.body.opcodes
    expected = [
        structure_key(tuple(opcodes[p] for p in one.instructions), "chip") for one in (kernel, part, kernel)
    ]
    assert expected[0] != expected[1]
    assert structure_keys(batch, "chip").tolist() == expected
    assert structure_keys(batch, "other").tolist() != expected
    assert structure_keys(batch, "chip").tolist() == expected
