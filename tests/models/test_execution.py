from __future__ import annotations

import os

import pytest
import torch

from costbench.errors import ParamsError
from costbench.models.execution import (
    IDEEP_CACHE,
    LARGE_BATCH_ROWS,
    apply_execution,
    choose_products,
    compiled_allowed,
    describe_execution,
    device_of,
    flush_denormals,
    onednn_keeps_fp32,
    plain_products,
)
from costbench.models.spec import Execution

CPU = torch.device("cpu")


def settings() -> tuple[int, str]:
    return torch.get_num_threads(), torch.backends.mkldnn.matmul.fp32_precision


def test_settings_hold_inside_and_are_restored() -> None:
    before = settings()
    with apply_execution(Execution(threads=2, onednn_matmul=False)):
        assert settings() == (2, before[1])
        with apply_execution(Execution(threads=1)):
            assert torch.get_num_threads() == 1
        assert settings() == (2, before[1])
    assert settings() == before


def test_settings_are_restored_after_an_error() -> None:
    before = settings()
    with pytest.raises(RuntimeError), apply_execution(Execution(threads=2)):
        raise RuntimeError
    assert settings() == before


def test_the_smallest_floats_are_zero_inside_a_block() -> None:
    """And ordinary products what they are without it, to the bit."""
    generator = torch.Generator().manual_seed(0)
    matrix, smallest = torch.randn(64, 64, generator=generator), torch.tensor(1e-39)
    product = matrix @ matrix
    with flush_denormals():
        assert float(smallest * 0.5) == 0.0
        assert torch.equal(matrix @ matrix, product)
        with flush_denormals():
            pass
        assert float(smallest * 0.5) == 0.0
    assert float(smallest * 0.5) > 0.0
    with pytest.raises(RuntimeError), flush_denormals():
        raise RuntimeError
    assert float(smallest * 0.5) > 0.0


def test_onednn_products_are_fp32() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(512, 512, generator=generator) for _ in range(2))
    exact = left.double() @ right.double()
    with apply_execution(Execution(onednn_matmul=True)):
        error = (left @ right - exact).abs().max()
    # bfloat16 inputs would be wrong by about 0.2 here.
    assert float(error) < 1e-3


def test_compiled_kernels_are_allowed_unless_told_otherwise() -> None:
    assert compiled_allowed()
    with apply_execution(Execution(compiled=False)):
        assert not compiled_allowed()
        with apply_execution(Execution()):
            assert compiled_allowed()
    assert compiled_allowed()


def test_ideep_keeps_few_products_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IDEEP_CACHE, raising=False)
    with apply_execution(Execution(onednn_matmul=False)):
        assert IDEEP_CACHE not in os.environ
    with apply_execution(Execution(onednn_matmul=True)):
        assert os.environ.get(IDEEP_CACHE) == ("64" if onednn_keeps_fp32() else None)
    monkeypatch.setenv(IDEEP_CACHE, "7")
    with apply_execution(Execution(onednn_matmul=True)):
        assert os.environ[IDEEP_CACHE] == "7"


def test_description_says_what_happens() -> None:
    fast = "onednn" if onednn_keeps_fp32() else "default"
    assert describe_execution(Execution(threads=3), CPU) == f"fp32 matmul {fast}, 3 threads"
    assert describe_execution(Execution(onednn_matmul=False), CPU) == "fp32 matmul default, 1 threads"


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, device in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert device_of("auto").type == device
        assert device_of("cpu") == CPU
    assert device_of("gpu").type == "cuda"


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParamsError, match="no CUDA GPU is available"):
        device_of("gpu")


def test_plain_products_are_plain_inside_only() -> None:
    with apply_execution(Execution()):
        before = settings()
        with plain_products():
            assert settings() == (before[0], "ieee")
        assert settings() == before


@pytest.mark.parametrize("keep_memory", [True, False])
def test_keeping_memory_changes_no_value(keep_memory: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(1 << 20, generator=generator)
    with apply_execution(Execution(keep_memory=keep_memory)):
        total = sum(float((numbers * factor).sum()) for factor in (1.0, -1.0))
    assert total == 0.0


def test_small_batches_go_to_the_default_library() -> None:
    before = settings()
    large = "bf16" if onednn_keeps_fp32() else before[1]
    with apply_execution(Execution()):
        choose_products(LARGE_BATCH_ROWS - 1)
        assert settings()[1] != "bf16"
        choose_products(LARGE_BATCH_ROWS)
        assert settings()[1] == large
    assert settings() == before


def test_outside_of_a_block_and_without_permission_nothing_is_chosen() -> None:
    before = settings()
    choose_products(LARGE_BATCH_ROWS)
    assert settings() == before
    with apply_execution(Execution(onednn_matmul=False)):
        choose_products(LARGE_BATCH_ROWS)
        assert settings()[1] == before[1]
