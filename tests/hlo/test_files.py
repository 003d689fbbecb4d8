"""Files of other forms are named, with a way to HLO."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import HloError
from costbench.hlo.files import proto_in


@pytest.mark.parametrize(
    "content",
    [
        b"module @jit_step attributes {mhlo.num_replicas = 1 : i32} {\n  func.func public @main() {\n",
        b"#loc = loc(unknown)\nmodule @jit_step {\n",
        b"// a comment\n\nbuiltin.module {\n",
        b"ML\xefR\x0bStableHLO_v1.0.0",
    ],
)
def test_mlir_is_told_from_hlo(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "step.mlir"
    path.write_bytes(content)
    with pytest.raises(
        HloError, match=r"step\.mlir: is MLIR, not HLO .expected HLO, from JAX: jax\.jit"
    ) as caught:
        proto_in(path)
    assert "\n" not in str(caught.value)


def test_hlo_text_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "step.txt"
    path.write_text("HloModule module\n\nENTRY module {\n  ROOT x = f32[2] parameter(0)\n}\n")
    assert proto_in(path).name == "module"
