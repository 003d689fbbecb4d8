"""Reads HLO of any form into a verified `HloModule`: a binary message, plain or compressed, or text."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import zstandard
from google.protobuf.message import DecodeError

from costbench.artifacts import read_bytes
from costbench.errors import DataError, HloError
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.text.parser import looks_like_text, proto_from_text
from costbench.hlo.wire import parse_message
from costbench.limits import MAX_MESSAGES, max_expanded_bytes

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
# Four bytes of zstd may stand for 128 KiB, so a chunk expands to 32 MiB at most before the total is compared.
_CHUNK_BYTES = 1 << 10
_BEGINNING_BYTES = 1 << 16
_MLIR_BYTECODE = b"ML\xefR"
_MLIR_TEXT = re.compile(r"\A\s*+(?:(?:#|//)[^\n]*+\n\s*+)*+(?:builtin\.)?module\b")
_FROM_JAX = (
    'HLO, from JAX: jax.jit(f).trace(*args).lower(lowering_platforms=("tpu",))'
    '.compiler_ir("hlo").as_serialized_hlo_module_proto()'
)


def read_module(path: Path | str) -> HloModule:
    """Reads and verifies the program in a file, which is binary or HLO text, plain, `.zst` or `.gz`.

    A binary file holds an `HloModuleProto`, or a message whose field 1 is one: an `HloProto` dump, TpuGraphs'
    layout tuning data.

    Raises:
        HloError: if the file is missing or not an HLO module.
    """
    return module_from_proto(read_proto(path), where=str(path))


def read_proto(path: Path | str) -> hlo_pb2.HloModuleProto:
    """Reads the message in a file, which is binary or HLO text, plain or compressed.

    Raises:
        HloError: if the file is missing or not an HLO module.
        DataError: if it is damaged in a sealed folder.
    """
    path = Path(path)
    try:
        content = decompress(read_bytes(path), where=str(path))
    except DataError as error:
        raise error.recast(HloError) from error
    try:
        # Editors on Windows begin text with a byte-order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = _text_of_another_encoding(content)
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


def _text_of_another_encoding(content: bytes) -> str:
    """Returns HLO text whose strings, such as paths of source files, are not UTF-8; else an empty text."""
    if b"HloModule" not in content[:_BEGINNING_BYTES]:
        return ""
    text = content.decode("utf-8-sig", "replace")
    return text if looks_like_text(text) else ""


def decompress(data: bytes, *, where: str, max_bytes: int | None = None) -> bytes:
    """Returns `data` itself, or its decompressed contents if it is a zstd frame or a gzip file.

    Args:
        data: the bytes.
        where: file that they are from, for errors.
        max_bytes: number of bytes that they may expand to, if not as many as a file's.

    Raises:
        HloError: on truncated or corrupt ones, or if they expand further than `costbench.limits` say.
    """
    frame: Any
    if data.startswith(_ZSTD_MAGIC):
        form, frame = "zstd frame", zstandard.ZstdDecompressor().decompressobj()
    elif data.startswith(_GZIP_MAGIC):  # as XLA dumps with --xla_dump_compress_protos
        form, frame = "gzip file", zlib.decompressobj(_GZIP_WINDOW_BITS)
    else:
        return data
    chunks: list[bytes] = []
    total, max_bytes = 0, max_bytes or max_expanded_bytes(len(data))
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            if frame.eof:
                break
            chunks.append(frame.decompress(data[start : start + _CHUNK_BYTES]))
            total += len(chunks[-1])
            if total > max_bytes:
                problem = f"a {form} of {len(data)} bytes that expands to {total} or more"
                raise HloError(problem, where=where, expected=f"at most {max_bytes}")
    except (zstandard.ZstdError, zlib.error, MemoryError) as error:
        raise HloError(f"corrupt {form}: {error}", where=where) from error
    if not frame.eof:
        raise HloError(f"truncated {form} of {len(data)} bytes", where=where, expected="a whole one")
    return b"".join(chunks)


def module_from_bytes(data: bytes, *, where: str) -> HloModule:
    """Parses a binary message, plain or compressed, and verifies its module; `where` names it in errors."""
    return module_from_proto(parse_proto(data, where=where), where=where)


def parse_proto(
    data: bytes, *, where: str, max_bytes: int | None = None, max_messages: int = MAX_MESSAGES
) -> hlo_pb2.HloModuleProto:
    """Returns the module message inside `data`.

    Args:
        data: binary message, plain or compressed.
        where: file that it is from, for errors.
        max_bytes: number of bytes that it may expand to, if not as many as a file's.
        max_messages: number of messages within it that are accepted.

    Raises:
        HloError: if the bytes are truncated, are no HLO module, or beyond the limits.
    """
    content = decompress(data, where=where, max_bytes=max_bytes)
    # Read as a bare module, a dump has a name of arbitrary bytes, which may or may not pass for text.
    for message in (hlo_pb2.HloModuleProto(), hlo_pb2.HloProto()):
        try:
            parse_message(message, content, where=where, max_messages=max_messages)
        except DecodeError:
            continue
        proto = message.hlo_module if isinstance(message, hlo_pb2.HloProto) else message
        if proto.computations:
            return proto
    raise HloError("truncated or no HLO module", where=where, expected="a binary HloModuleProto")
