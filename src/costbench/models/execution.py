"""How a CPU runs the network: threads, and which library multiplies fp32 matrices.

oneDNN's fp32 kernels are up to 2.4 times as fast as torch's default (MKL) on some x86 processors. Torch
hands fp32 products to oneDNN only when told that bfloat16 would do, a permission that oneDNN uses where the
processor has bfloat16 matrix tiles (AMX) and ignores elsewhere: without those, the arithmetic stays fp32.
So the permission is given only where it cannot change the precision. Nothing is lost with AMX: kept from
its tiles (`ONEDNN_MAX_CPU_ISA=AVX512_CORE`), oneDNN is as fast as MKL there (.91 to 1.06 times over six
products and their gradients, Emerald Rapids).

oneDNN generates code for every shape of product, about a millisecond each, and keeps the 1024 used last.
Small batches would wait for code longer than they multiply: they go to the default library
(`choose_products`), and large ones come in a few sizes only (`graph_batch.Collator.collate`). ideep, torch's
layer over oneDNN, keeps 1024 more and asks oneDNN all the same: hundreds of megabytes for nothing, as batches
differ in shape. Its cache is therefore made to hold 64, what a step needs, unless the environment already
says how many.

A training step allocates and frees the same few megabytes a hundred times. glibc hands such memory back to
the system and requests it again, a page fault for every 4 kB: a tenth of a step. Under `apply_execution` it
keeps up to a gigabyte instead.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch

from costbench.errors import ParamsError
from costbench.models.spec import Accelerator, Execution

# Its settings are made at run time, which type checkers cannot see.
_mkldnn: Any = torch.backends.mkldnn


def device_of(accelerator: Accelerator) -> torch.device:
    """Returns the device of an accelerator: `auto` is a CUDA GPU where there is one, else the CPU.

    Raises:
        ParamsError: for `gpu` without a CUDA GPU.
    """
    if accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ParamsError("no CUDA GPU is available", field="accelerator", expected="cpu or auto")
    return torch.device("cuda")


def describe_execution(execution: Execution, device: torch.device) -> str:
    """Returns what is recorded with results: the GPU, or the matrix library and the number of threads."""
    if device.type == "cuda":
        return f"GPU {torch.cuda.get_device_name(device)}"
    library = "onednn" if execution.onednn_matmul and onednn_keeps_fp32() else "default"
    return f"fp32 matmul {library}, {execution.threads} threads"


IDEEP_CACHE = "LRU_CACHE_CAPACITY"
"""Environment variable that ideep reads once in a process, at its first product."""


def onednn_keeps_fp32() -> bool:
    """Returns whether oneDNN, allowed bfloat16, still multiplies in fp32 on this processor."""
    capabilities = torch.cpu.get_capabilities()
    is_x86 = capabilities.get("architecture") == "x86_64"
    return is_x86 and _mkldnn.is_available() and not capabilities.get("amx_tile", True)


_KEPT_BYTES = 1 << 30
_DEFAULT_BYTES = 32 << 20
"""The upper limit of glibc's own dynamic threshold; its current value cannot be read."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    try:
        mallopt: Callable[[int, int], int] = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return None
    return mallopt


def _keep_freed(size: int) -> None:
    """Lets glibc serve blocks up to `size` bytes from the heap and return its end only above twice that."""
    mallopt = _mallopt()
    if mallopt is None:
        return
    mallopt(_M_MMAP_THRESHOLD, size)
    mallopt(_M_TRIM_THRESHOLD, min(2 * size, _KEPT_BYTES))


_COMPILED_ALLOWED: ContextVar[bool] = ContextVar("compiled kernels allowed", default=True)


def compiled_allowed() -> bool:
    """Returns whether the `Execution` that is applied, if any, lets compiled kernels run."""
    return _COMPILED_ALLOWED.get()


LARGE_BATCH_ROWS = 4096
"""Rows of a batch (nodes times decisions) from which oneDNN multiplies."""
_ONEDNN_ALLOWED: ContextVar[bool] = ContextVar("oneDNN allowed", default=False)


def choose_products(rows: int) -> None:
    """Chooses the matrix library for batches of `rows` rows until the next choice or the end of the block."""
    if _ONEDNN_ALLOWED.get():
        _mkldnn.matmul.fp32_precision = "bf16" if rows >= LARGE_BATCH_ROWS else "ieee"


@contextmanager
def apply_execution(execution: Execution) -> Iterator[None]:
    """Runs the block under `execution`, then restores what was set before."""
    threads, precision = torch.get_num_threads(), _mkldnn.matmul.fp32_precision
    use_onednn = execution.onednn_matmul and onednn_keeps_fp32()
    token = _ONEDNN_ALLOWED.set(use_onednn)
    compiled = _COMPILED_ALLOWED.set(execution.compiled)
    if use_onednn:
        os.environ.setdefault(IDEEP_CACHE, "64")
        _mkldnn.matmul.fp32_precision = "bf16"
    torch.set_num_threads(execution.threads)
    _keep_freed(_KEPT_BYTES if execution.keep_memory else _DEFAULT_BYTES)
    try:
        yield
    finally:
        _keep_freed(_DEFAULT_BYTES)
        _ONEDNN_ALLOWED.reset(token)
        _COMPILED_ALLOWED.reset(compiled)
        torch.set_num_threads(threads)
        _mkldnn.matmul.fp32_precision = precision


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Runs the block with floats below 1.2e-38 taken for zero, as far as the processor can.

    The momentum of a unit without gradients falls below that after 1,700 steps, and Intel's processors take
    up to forty times as long for a product with such floats in it: four fifths of a long training.
    """
    before = bool(torch.tensor(1e-39) * 1.0 == 0.0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def plain_products() -> Iterator[None]:
    """Runs the block with torch's default matrix library: on many small products oneDNN is far slower."""
    precision = _mkldnn.matmul.fp32_precision
    _mkldnn.matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        _mkldnn.matmul.fp32_precision = precision
