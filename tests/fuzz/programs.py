"""Small programs that between them have every kind of attribute: what the mutations start from."""

from __future__ import annotations

from costbench.hlo.instruction import DotDimensions, GatherDimensions, ScatterDimensions
from costbench.hlo.module import HloModule
from tests.hlo.builder import ModuleBuilder
from tests.hlo.random_modules import SQUARE, STEPS


def every_step(first: int, count: int) -> HloModule:
    """Some of the steps of random modules, one after another on two arrays of 8 x 8."""
    b = ModuleBuilder(f"steps_{first}")
    x, y = b.parameter(SQUARE), b.parameter(SQUARE)
    for step in STEPS[first : first + count]:
        x = step(b, x, y)
    return b.build(x, y)


def attention() -> HloModule:
    """Batched dots, a softmax, a sort and a batched gather and scatter."""
    b = ModuleBuilder("attention")
    q, k = b.parameter("f32[4,16,32]"), b.parameter("f32[4,32,16]")
    scores = b.op("dot", q, k, shape="f32[4,16,16]", dot=DotDimensions((2,), (1,), (0,), (0,)))
    top = b.broadcast(b.reduce(scores, (2,), "maximum"), "f32[4,16,16]", (0, 1))
    weights = b.op("exponential", b.op("subtract", scores, top))
    i = b.parameter("s32[4,5]")
    rows = GatherDimensions((2,), (1,), (1,), 2, (1, 1, 16), (0,), (0,))
    picked = b.op("gather", weights, i, shape="f32[4,5,16]", gather=rows)
    numbers = ScatterDimensions((2,), (1,), (1,), 2, (0,), (0,))
    called = (b.function("add", b.shape(weights)),)
    added = b.op("scatter", weights, i, picked, shape="f32[4,16,16]", scatter=numbers, called=called)
    zero = b.constant("s32[]")
    part = b.op(
        "dynamic-slice", added, zero, zero, zero, shape="f32[1,16,16]", dynamic_slice_sizes=(1, 16, 16)
    )
    return b.build(
        b.op("dynamic-update-slice", weights, part, zero, zero, zero, shape="f32[4,16,16]"), picked
    )


def rest() -> HloModule:
    """A sort, a branch, a call, a Fourier transform, linear algebra, and random bits."""
    b = ModuleBuilder("rest")
    x = b.parameter(SQUARE)
    shape = b.shape(x)

    def less(c: ModuleBuilder) -> int:
        return c.op("compare", c.parameter("f32[]"), c.parameter("f32[]"), comparison_direction="LT")

    ordered = b.op("sort", x, dimensions=(1,), is_stable=True, called=(b.computation("less", less),))
    branches = tuple(
        b.computation(kind, lambda c, k=kind: c.op(k, c.parameter(shape))) for kind in ("tanh", "sqrt")
    )
    branched = b.op("conditional", b.parameter("pred[]"), ordered, ordered, shape=SQUARE, called=branches)
    called = b.op("call", branched, shape=SQUARE, called=branches[:1])
    wave = b.op("fft", called, shape="c64[8,5]{1,0}", fft_length=(8,), fft_type=2)
    solved = b.op("triangular-solve", b.op("cholesky", called), called, shape=SQUARE)
    state = b.parameter("u64[2]")
    bits = b.op("rng-bit-generator", state, shape="(u64[2]{0}, u32[8,8]{1,0})")
    numbers = b.convert(b.get(bits, 1), "f32")
    larger = b.op("compare", solved, numbers, comparison_direction="GT")
    mixed = b.op("select", larger, solved, numbers)
    places = b.op("iota", shape=SQUARE, dimensions=(1,))
    limited = b.op(
        "clamp", b.constant("f32[]"), b.op("add", mixed, places), b.constant("f32[]"), shape=SQUARE
    )
    return b.build(b.op("reverse", limited, dimensions=(0, 1)), wave)


def programs() -> list[HloModule]:
    """All of them."""
    return [*(every_step(first, 7) for first in range(0, len(STEPS), 7)), attention(), rest()]


TEXTS = (
    """HloModule dense, is_scheduled=true, entry_computation_layout={(f32[64,32]{1,0})->f32[64,16]{1,0}}

fused { x = f32[64,16]{1,0} parameter(0)
  ROOT y = f32[64,16]{1,0} tanh(x) }

ENTRY %main (a: f32[64,32], b: f32[32,16]) -> f32[64,16] {
  %a = f32[64,32]{1,0} parameter(0), metadata={op_name="x[\\"a\\"]"}
  %b = f32[32,16]{1,0} parameter(1)
  %c = f32[64,16]{1,0} dot(f32[64,32]{1,0} %a, f32[32,16]{1,0} %b),
    lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %out = f32[64,16]{1,0} fusion(%c), kind=kLoop, calls=fused, backend_config={"a":{"b":[1,2]}}
}
""",
    """HloModule loop
body { s = (s32[], f32[2,8]{1,0:T(8,128)}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  p = f32[2,8]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one), control-predecessors={p}
  ROOT t = (s32[], f32[2,8]{1,0}) tuple(j, p) }
condition { s = (s32[], f32[2,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(300)
  ROOT c = pred[] compare(i, limit), direction=LT }
add { x = f32[] parameter(0) y = f32[] parameter(1)
  ROOT z = f32[] add(x, y) }
ENTRY main { k = f32[3,3,2,4] parameter(0) x = f32[1,8,8,2] parameter(1) zero = f32[] constant(0)
  c = f32[1,8,8,4] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  w = f32[1,4,4,4] reduce-window(c, zero), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=add
  f = f32[64] reshape(w) h = f32[16] slice(f), slice={[0:16]}
  r = f32[2,8] reshape(h) i = s32[] constant(0)
  s = (s32[], f32[2,8]) tuple(i, r)
  ROOT out = (s32[], f32[2,8]) while(s), condition=condition, body=body }
""",
)
"""Dumps as XLA prints them."""
