from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from scipy.special import erfc

from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import scratchpad_bytes
from costbench.compiler.tile_space import tile_space
from costbench.hardware.device import NUM_RUNS, Device, measure_batch, structure_keys
from costbench.hardware.noise import structure_key
from costbench.hardware.simulator import simulate
from costbench.target import Target, load_target
from tests.compiler import small_kernels as small
from tests.compiler.random_kernels import kernels
from tests.compiler.small_kernels import KERNELS
from tests.compiler.test_tile_space import lowered
from tests.hardware.machines import changed, machine

V3 = load_target("tpu_v3")
DEVICE = Device(V3)


def all_tiles(kernel: Kernel) -> TileSizes:
    space = tile_space(kernel, V3.architecture)
    return space.decode(space.legal_ids())


def test_a_measurement_is_close_to_the_machines_price() -> None:
    for make in (small.convolution, small.elementwise, small.copy):
        kernel = make()
        tiles = all_tiles(kernel)
        price = simulate(kernel, tiles, V3).runtime_ns
        measured = DEVICE.measure(kernel, tiles).runtime_ns
        # Five standard deviations of relative noise, and of what interrupts short runs.
        slack = 5 * (V3.timing.noise_sd * price + V3.timing.noise_short_ns) + 1
        assert (np.abs(measured - price) <= slack).all()


def test_noise_is_a_per_cent_at_most() -> None:
    assert 0.0 < V3.timing.noise_sd <= 0.01
    kernel = small.convolution()
    tiles = all_tiles(kernel)
    runs = np.array([Device(V3, seed).measure(kernel, tiles).runtime_ns for seed in range(20)])
    spread = runs.std(axis=0) / runs.mean(axis=0)
    assert 0.0 < spread.mean() < 0.01


def test_the_fastest_of_three_runs_is_kept_and_all_are_charged() -> None:
    # Noise of one kind only, always upwards: the minimum of three half-normal numbers.
    noisy = machine(iteration_ns=1e6, noise_short_ns=1e4)
    kernel = small.elementwise()
    tiles = all_tiles(kernel)
    price = simulate(kernel, tiles, noisy).runtime_ns
    extra, charged = [], []
    for seed in range(200):
        measurement = Device(noisy, seed).measure(kernel, tiles)
        extra.append(measurement.runtime_ns - price)
        charged.append(measurement.run_seconds * 1e9 - NUM_RUNS * price)
    assert np.min(extra) >= -0.5
    # Expected minimum of three half-normal numbers: their survival function, cubed and integrated.
    x = np.linspace(0.0, 10.0, 100_001)
    expected = float(np.trapezoid(erfc(x / np.sqrt(2.0)) ** 3, x))
    assert np.mean(extra) == pytest.approx(expected * 1e4, rel=0.05)
    # Expected half-normal number: sqrt(2 / pi) sd, three times.
    assert np.mean(charged) == pytest.approx(3 * np.sqrt(2 / np.pi) * 1e4, rel=0.05)


def test_seconds_are_charged_for_what_ran() -> None:
    kernel = small.elementwise()
    tiles = all_tiles(kernel)
    measurement = DEVICE.measure(kernel, tiles)
    assert measurement.seconds == pytest.approx(measurement.run_seconds.sum())
    assert (measurement.run_seconds * 1e9 >= NUM_RUNS * measurement.runtime_ns - 2).all()


def test_the_same_seed_measures_the_same() -> None:
    kernel = small.dot()
    tiles = all_tiles(kernel)
    first, second = (Device(V3, 3).measure(kernel, tiles) for _ in range(2))
    assert first.runtime_ns.tolist() == second.runtime_ns.tolist()
    assert first.seconds == second.seconds
    other = Device(V3, 4).measure(kernel, tiles)
    assert first.runtime_ns.tolist() != other.runtime_ns.tolist()


@given(kernels())
def test_what_is_measured_together_does_not_matter(kernel: Kernel) -> None:
    space = tile_space(kernel, V3.architecture)
    tiles = space.decode(space.sample(np.random.default_rng(0), 30))
    together = DEVICE.measure(kernel, tiles).runtime_ns
    order = np.random.default_rng(1).permutation(len(tiles))
    shuffled = DEVICE.measure(kernel, tiles[order]).runtime_ns
    assert shuffled.tolist() == together[order].tolist()
    half = len(tiles) // 2
    pieces = [DEVICE.measure(kernel, part).runtime_ns for part in (tiles[:half], tiles[half:])]
    assert np.concatenate(pieces).tolist() == together.tolist()


def test_equal_kernels_measure_equally_and_others_do_not() -> None:
    tiles = all_tiles(small.elementwise())
    runtimes = [DEVICE.measure(small.elementwise(), tiles).runtime_ns.tolist() for _ in range(2)]
    assert runtimes[0] == runtimes[1]
    other = small.elementwise(opcode="multiply")
    assert DEVICE.measure(other, tiles).runtime_ns.tolist() != runtimes[0]


def test_compiles_fail_near_the_limit_of_the_scratchpad_only() -> None:
    target = changed(V3, failure_rate=0.9)
    kernel = small.elementwise("f32[8192,2048]")
    space = tile_space(kernel, target.architecture)
    ids = space.legal_ids()
    share = scratchpad_bytes(space.nest, space.extents(ids)) / target.architecture.scratchpad_bytes
    failures = np.mean(
        [Device(target, seed).measure(kernel, space.decode(ids)).failed for seed in range(100)], axis=0
    )
    floor = target.timing.failure_floor
    assert (failures[share <= floor] == 0.0).all()
    assert (share > floor).any()
    expected = np.clip((share - floor) / (1 - floor), 0, 1) * 0.9
    # A hundred throws: five standard deviations are at most 0.25.
    assert np.abs(failures - expected).max() < 0.25
    assert failures.max() > 0.2


def test_a_failed_compile_has_no_runtime_and_costs_nothing() -> None:
    target = changed(V3, failure_rate=1.0, failure_floor=0.01)
    kernel = small.elementwise("f32[8192,2048]")
    tiles = all_tiles(kernel)
    measurement = Device(target).measure(kernel, tiles)
    assert measurement.failed.any()
    assert not measurement.failed.all()
    assert (measurement.runtime_ns[measurement.failed] == 0).all()
    assert (measurement.run_seconds[measurement.failed] == 0).all()
    assert (measurement.runtime_ns[~measurement.failed] > 0).all()
    predicted = Device(target).predict(kernel, tiles)
    assert np.isinf(predicted[measurement.failed]).all()
    assert predicted[~measurement.failed].tolist() == measurement.runtime_ns[~measurement.failed].tolist()


def test_the_smallest_tile_never_fails() -> None:
    target = changed(V3, failure_rate=1.0, failure_floor=1e-9)
    kernel = small.elementwise("f32[8192,2048]")
    space = tile_space(kernel, target.architecture)
    for seed in range(50):
        assert not Device(target, seed).measure(kernel, space.decode(np.array([0]))).failed[0]


def test_runtimes_are_whole_nanoseconds_from_one_on() -> None:
    free = machine()
    measurement = Device(free).measure(small.elementwise(), all_tiles(small.elementwise())[:1])
    assert measurement.runtime_ns.dtype == np.int64
    assert (measurement.runtime_ns >= 1).all()


def test_a_machine_that_prices_nonsense_is_found_out() -> None:
    endless = machine(launch_ns=float("inf"))
    with pytest.raises(FloatingPointError, match="priced a kernel at inf ns"):
        Device(endless).measure(small.elementwise(), all_tiles(small.elementwise())[:1])


def assert_measured_alike(target: Target, kernel: Kernel) -> bool:
    """A batch of one kernel three times, at its first, middle and last legal tile; whether any failed."""
    device, space = Device(target, seed=5), tile_space(kernel, target.architecture)
    ids = space.legal_ids()[[0, -1, len(space.legal_ids()) // 2]]
    extents = space.extents(ids)
    batch = lowered(kernel, kernel, kernel)
    room = np.zeros((3, batch.max_loops), dtype=np.int64)
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


def test_a_kernel_of_a_batch_takes_as_long_as_alone_without_irregular_code() -> None:
    assert_measured_alike(machine(iteration_ns=100.0), small.convolution())


def test_compiles_of_a_batch_fail_as_they_do_alone() -> None:
    failing = changed(V3, failure_rate=1.0, failure_floor=1e-3)
    failed = [assert_measured_alike(failing, KERNELS[name]()) for name in KERNELS]
    assert any(failed)


def test_kernels_that_are_not_chosen_are_not_run() -> None:
    kernel = small.elementwise()
    space = tile_space(kernel, V3.architecture)
    batch = lowered(kernel, kernel)
    extents = space.extents(np.array([1]))
    measurement = measure_batch(Device(V3), batch.lowered, np.array([1]), extents, [kernel.fingerprint])
    assert measurement.runtime_ns.tolist() == Device(V3).measure_nest(space.nest, extents).runtime_ns.tolist()


def test_a_batch_that_is_priced_at_nonsense_is_found_out() -> None:
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
