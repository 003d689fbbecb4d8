"""Reads an HLO file of any form: a binary message, plain or compressed, or text."""

from __future__ import annotations

import re
from pathlib import Path

from costbench.errors import HloError
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_proto, parse_proto
from costbench.hlo.text.reader import looks_like_text, proto_from_text

_MLIR_BYTECODE = b"ML\xefR"
_MLIR_TEXT = re.compile(r"\A\s*(?:(?:#|//)[^\n]*\n\s*)*(?:builtin\.)?module\b")
_FROM_JAX = (
    'HLO, from JAX: jax.jit(f).trace(*args).lower(lowering_platforms=("tpu",))'
    '.compiler_ir("hlo").as_serialized_hlo_module_proto()'
)


def program_in(path: Path) -> HloModule:
    """Reads and verifies the program in a file.

    Raises:
        HloError: if the file is missing or not an HLO module.
    """
    return module_from_proto(proto_in(path), where=str(path))


def proto_in(path: Path) -> hlo_pb2.HloModuleProto:
    """Reads the message in a file, which is binary, plain or compressed, or HLO text.

    Raises:
        HloError: if the file is missing or not an HLO module.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HloError(f"cannot read: {error.strerror}", where=path, expected="an HLO module file") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if looks_like_text(text):
        return proto_from_text(text, where=str(path))
    if content.startswith(_MLIR_BYTECODE) or _MLIR_TEXT.search(text):
        raise HloError("is MLIR, not HLO", where=path, expected=_FROM_JAX)
    try:
        return parse_proto(content, where=str(path))
    except HloError as error:
        if not text:
            raise
        expected = "text that begins with HloModule, or a binary HloModuleProto"
        raise HloError("no HLO module", where=path, expected=expected) from error
