"""Asynchronous pairs and collectives that do not fit together are refused, as by XLA's verifier."""

from __future__ import annotations

import pytest

from costbench.errors import HloError
from costbench.hlo.text.parser import module_from_text

PREFIX = """HloModule m
w { a = f32[8,4] parameter(0) ROOT s = f32[2,4] slice(a), slice={[0:2], [0:4]} }
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
ENTRY e { p = f32[8,4] parameter(0) """


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s = ((f32[4,4]), f32[2,4]) async-start(p), calls=w", "e/s: member 0 (f32[4,4]{1,0})"),
        ("s = ((f32[8,4]), f32[3,4]) async-start(p), calls=w", "e/s: member 1 f32[3,4]{1,0}"),
        ("s = (f32[8,4], f32[2,4]) async-start(p), calls=w", "e/s: shape"),
        ("s = ((f32[8,4]), f32[2,4]) async-start(p)", "e/s: computations that async-start calls: 0"),
        ("s = ((f32[8,4], f32[8,4]), f32[2,4]) async-start(p, p), calls=w", "e/s: arguments: 2"),
        ("s = ((f32[8,4]), f32[2,4]) async-start(p), calls=w d = f32[8,4] async-done(s)", "e/d: shape"),
        ("s = ((f32[8,4]), f32[2,4]) async-start(p), calls=w d = f32[2,4] async-done(p)", "e/d: operand 0"),
        ("s = ((f32[8,4]), f32[2,4]) slice-start(p), slice={[0:3], [0:4]}", "async_wrapped/slice: shape"),
        ("s = (f32[8,4], f32[4,4], u32[]) copy-start(p)", "e/s: shape"),
        ("s = (f32[8,4], f32[8,4], u32[]) copy-start(p) d = f32[4] copy-done(s)", "e/d: shape"),
        ("s = f32[4,4] all-reduce-start(p), to_apply=add", "e/s: shape f32[4,4]"),
        ("s = f32[8,4] all-reduce-start(p), to_apply=w", "e/s: computation of parameters"),
        ("s = f32[8,4] all-gather-start(p), dimensions={0}", "e/s: shape f32[8,4]"),
        ("s = f32[9,4] all-gather(p), dimensions={0}", "the same extents, but for a multiple along axis 0"),
        ("s = f32[16,4] all-gather(p), dimensions={2}", "e/s: dimensions (2,)"),
        ("s = f32[16,4] reduce-scatter(p), dimensions={0}, to_apply=add", "multiple along axis 0"),
        ("s = f32[4,8] all-to-all(p), dimensions={0}", "e/s: shape f32[4,8]"),
        ("s = f32[8,4] ragged-dot(p, p), lhs_contracting_dims={1}", "operands of ragged-dot: 2"),
        ("s = f32[8,4] ragged-dot(p, p, p), lhs_contracting_dims={5}", "rhs contracting dimensions: 0"),
        ("s = f32[8,4] scan(p), dimensions={0}", "computations that scan calls: 0"),
        ("s = f32[8,4] ragged-all-to-all(p)", "operands of ragged-all-to-all: 1"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(HloError) as raised:
        module_from_text(PREFIX + text + " }", where="file.hlo")
    assert message in str(raised.value)
    assert str(raised.value).startswith("file.hlo: ")
