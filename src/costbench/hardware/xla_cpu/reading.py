"""Reads programs of users for the machine: binary HLO or text, as JAX and XLA write them."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from costbench.artifacts import read_bytes
from costbench.errors import HloError, one_line
from costbench.hardware.xla_cpu.backend import require_jax
from costbench.hardware.xla_cpu.program import MachineProgram
from costbench.hlo.call_inlining import inline_calls
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import decompress, parse_proto, read_proto
from costbench.hlo.text.parser import looks_like_text

_LOSSY = frozenset(("cholesky", "triangular-solve", "reduce-precision", "rng", "custom-call"))
"""Opcodes with attributes that `Instruction` does not have."""


def read_program_proto(path: Path) -> hlo_pb2.HloModuleProto:
    """Returns the message in a file; text is parsed by XLA, which reads the values of constants too.

    Raises:
        HloError: if it is no HLO module.
        DataError: if JAX is not installed.
    """
    proto = read_proto(path)
    text = decompress(read_bytes(path), where=str(path)).decode("utf-8-sig", errors="replace")
    if not looks_like_text(text):
        return proto
    require_jax()
    # As JAX sets it, for which it is too early: its import reads which machines to use.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    parser: Any = import_module("jaxlib._hlo")
    try:
        module = parser.hlo_module_from_text(text)
    except Exception as error:  # jaxlib has no class of its own for it
        raise HloError(f"XLA cannot read it: {one_line(error)}", where=path, expected="HLO text") from error
    return parse_proto(bytes(module.as_serialized_hlo_module_proto()), where=str(path))


def machine_program(proto: hlo_pb2.HloModuleProto, path: Path | str, name: str) -> MachineProgram:
    """Returns a program with its fusions and calls inlined.

    Args:
        proto: the message.
        path: file that it is from, for errors.
        name: name of the program.

    Raises:
        HloError: if it is no valid module, or has an operation whose attributes are not read, so that XLA
            would be given another one.
    """
    for inst in (inst for body in proto.computations for inst in body.instructions):
        if inst.opcode in _LOSSY:
            what = f"{inst.opcode} {inst.custom_call_target}".strip()
            problem, expected = f"attributes of {what} are not read", "a program without it"
            raise HloError(problem, where=path, field=inst.name, expected=expected)
    module = module_from_proto(proto, where=str(path))
    try:
        return MachineProgram(inline_calls(inline_fusions(module)), name)
    except HloError as error:
        raise error.recast(HloError, where=path) from error
