"""Features of kernels from a worker process, and what becomes of kernels that hang, crash or are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.devices.instrumented.analysis import Analyzer, KernelSource
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.llvm.operations import KINDS
from tests.schedules.llvm import kernels

MATMUL = KernelSource(kernels.MATMUL, "kernel", kernels.MATMUL_SIZES)


def test_multiply_adds_are_the_operators(tmp_path: Path) -> None:
    with Analyzer() as analyzer:
        program_features = analyzer.features(MATMUL)
    block = np.repeat(np.arange(len(program_features.names)), np.diff(program_features.static.blocks))
    fused = program_features.static.kinds == KINDS.index("multiply_add")
    assert (
        int(np.sum(fused * program_features.static.shapes[:, 0] * program_features.block_counts(1)[block]))
        == 5 * 6 * 40
    )
    assert program_features.footprint == 3 * 4096
    program_features.save(tmp_path / "f.npz")
    again = ProgramFeatures.load(tmp_path / "f.npz")
    assert again.profile.tolist() == program_features.profile.tolist()
    assert again.names == program_features.names
    assert again.static.num_values == program_features.static.num_values


def test_each_number_of_threads_is_counted() -> None:
    with Analyzer(threads=(4, 2)) as analyzer:
        program_features = analyzer.features(KernelSource(kernels.PARALLEL, "kernel", {"out": 40}))
    loop = program_features.names.index("task:loop")
    assert [int(program_features.block_counts(threads)[loop]) for threads in (1, 2, 4)] == [10, 5, 3]
    with pytest.raises(DataError, match="no counts for 3 threads"):
        program_features.effective_counts(3)


def test_an_endless_kernel_ends_in_an_error_and_the_next_one_runs() -> None:
    with Analyzer(seconds=3.0) as analyzer:
        with pytest.raises(DataError, match=r"time-out .*ends within 3 s"):
            analyzer.features(KernelSource(kernels.ENDLESS, "kernel", {}))
        assert analyzer.features(MATMUL).touched == 5 * 40 * (6 * 2 + 1)


def test_a_crash_is_an_error() -> None:
    text = "define void @kernel() {\n  call void @llvm.trap()\n  ret void\n}\ndeclare void @llvm.trap()\n"
    with Analyzer() as analyzer, pytest.raises(DataError, match="llvm\\.trap"):
        analyzer.features(KernelSource(text, "kernel", {}))


def test_files_that_are_no_features_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "f.npz").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read as features"):
        ProgramFeatures.load(tmp_path / "f.npz")
