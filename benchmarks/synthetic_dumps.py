"""A dump of the size and kind of XLA's for Llama 3.1 on eight devices, as text.

The sizes are those of the model of 405 billion parameters, a part of the heads and of the inner width on each
device. The module is scheduled; every layer is unrolled and has fusions of its own; partial sums are reduced
asynchronously, with replica groups in iota form; weights are copied into the scratchpad ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Template

LLAMA_LAYERS = 126
DEVICES = 8
_SIZES = {"tokens": 2048, "hidden": 16384, "heads": 128 // DEVICES, "head": 128, "inner": 53248 // DEVICES}
_SHAPES = {
    "x": "bf16[$tokens,$hidden]",
    "xf": "f32[$tokens,$hidden]",
    "scale": "bf16[$hidden]",
    "projected": "bf16[$tokens,$width]",
    "split": "bf16[$tokens,$heads,$head]",
    "by_head": "bf16[$heads,$tokens,$head]",
    "scores": "f32[$heads,$tokens,$tokens]",
    "weighted": "bf16[$heads,$tokens,$tokens]",
    "row": "f32[$heads,$tokens]",
    "gated": "bf16[$tokens,$inner]",
    "w_in": "bf16[$hidden,$width]",
    "w_out": "bf16[$width,$hidden]",
    "w_up": "bf16[$hidden,$inner]",
    "w_down": "bf16[$inner,$hidden]",
}
_WEIGHTS = {
    "wq": "w_in",
    "wk": "w_in",
    "wv": "w_in",
    "wo": "w_out",
    "wg": "w_up",
    "wu": "w_up",
    "wd": "w_down",
}
_SCALARS = """%$name (a: $kind[], b: $kind[]) -> $kind[] {
  %a = $kind[] parameter(0)
  %b = $kind[] parameter(1)
  ROOT %r = $kind[] $opcode(%a, %b)
}

"""
_FUSED = """%norm.$i (p: $x, s: $scale) -> $x {
  %p = $x parameter(0)
  %s = $scale parameter(1)
  %f = $xf convert(%p)
  %q = $xf multiply(%f, %f)
  %zero = f32[] constant(0)
  %sum = f32[$tokens] reduce(%q, %zero), dimensions={1}, to_apply=%add
  %r = f32[$tokens] rsqrt(%sum)
  %b = $xf broadcast(%r), dimensions={0}
  %m = $xf multiply(%f, %b)
  %c = $x convert(%m)
  %t = $x broadcast(%s), dimensions={1}
  ROOT %o = $x multiply(%c, %t)
}

%heads.$i (p: $projected) -> $by_head {
  %p = $projected parameter(0)
  %r = $split reshape(%p)
  ROOT %t = $by_head transpose(%r), dimensions={1,0,2}
}

%softmax.$i (p: $scores) -> $weighted {
  %p = $scores parameter(0)
  %low = f32[] constant(-inf)
  %m = $row reduce(%p, %low), dimensions={2}, to_apply=%max
  %b = $scores broadcast(%m), dimensions={0,1}
  %d = $scores subtract(%p, %b)
  %e = $scores exponential(%d)
  %zero = f32[] constant(0)
  %s = $row reduce(%e, %zero), dimensions={2}, to_apply=%add
  %c = $scores broadcast(%s), dimensions={0,1}
  %q = $scores divide(%e, %c)
  ROOT %o = $weighted convert(%q)
}

%gate.$i (p: $gated, q: $gated) -> $gated {
  %p = $gated parameter(0)
  %q = $gated parameter(1)
  %l = $gated logistic(%p)
  %m = $gated multiply(%p, %l)
  ROOT %o = $gated multiply(%m, %q)
}

%join.$i (p: $x, q: $x) -> $x {
  %p = $x parameter(0)
  %q = $x parameter(1)
  ROOT %o = $x add(%p, %q)
}

"""
_PREFETCH = """  %${w}s.$i = ($shape{1,0:S(1)}, $shape, u32[]) copy-start(%$w)
  %$w.$i = $shape{1,0:S(1)} copy-done(%${w}s.$i)
"""
_LAYER = """  %n.$i = $x fusion(%x.$i, %scale), kind=kLoop, calls=%norm.$i
  %q.$i = $projected dot(%n.$i, %wq.$i), $rows
  %qh.$i = $by_head fusion(%q.$i), kind=kLoop, calls=%heads.$i
  %k.$i = $projected dot(%n.$i, %wk.$i), $rows
  %kh.$i = $by_head fusion(%k.$i), kind=kLoop, calls=%heads.$i
  %v.$i = $projected dot(%n.$i, %wv.$i), $rows
  %vh.$i = $by_head fusion(%v.$i), kind=kLoop, calls=%heads.$i
  %s.$i = $scores dot(%qh.$i, %kh.$i), $batched, rhs_contracting_dims={2}
  %p.$i = $weighted fusion(%s.$i), kind=kInput, calls=%softmax.$i
  %a.$i = $by_head dot(%p.$i, %vh.$i), $batched, rhs_contracting_dims={1}
  %at.$i = $split transpose(%a.$i), dimensions={1,0,2}
  %ar.$i = $projected reshape(%at.$i)
  %o.$i = $x dot(%ar.$i, %wo.$i), $rows
  %os.$i = $x all-reduce-start(%o.$i), channel_id=1, $groups, to_apply=%sum
  %or.$i = $x all-reduce-done(%os.$i)
  %h.$i = $x fusion(%x.$i, %or.$i), kind=kLoop, calls=%join.$i
  %g.$i = $gated dot(%h.$i, %wg.$i), $rows
  %u.$i = $gated dot(%h.$i, %wu.$i), $rows
  %f.$i = $gated fusion(%g.$i, %u.$i), kind=kLoop, calls=%gate.$i
  %d.$i = $x dot(%f.$i, %wd.$i), $rows
  %ds.$i = $x all-reduce-start(%d.$i), channel_id=1, $groups, to_apply=%sum
  %dr.$i = $x all-reduce-done(%ds.$i)
  %x.$next = $x fusion(%h.$i, %dr.$i), kind=kLoop, calls=%join.$i
"""
_NAMES = {
    **{name: str(size) for name, size in _SIZES.items()},
    "width": str(_SIZES["heads"] * _SIZES["head"]),
    "rows": "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "batched": "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}",
    "groups": f"replica_groups=[1,{DEVICES}]<=[{DEVICES}], use_global_device_ids=true",
}
_NAMES |= {name: Template(shape).substitute(_NAMES) for name, shape in _SHAPES.items()}


def llama_dump(layers: int = LLAMA_LAYERS) -> str:
    """Returns HLO text of the forward pass of so many layers, the same for the same number."""
    return "".join(_parts(layers))


def _parts(layers: int) -> Iterator[str]:
    yield f"HloModule jit_llama, is_scheduled=true, num_partitions={DEVICES}\n\n"
    for name, kind, opcode in (("add", "f32", "add"), ("max", "f32", "maximum"), ("sum", "bf16", "add")):
        yield Template(_SCALARS).substitute(name=name, kind=kind, opcode=opcode)
    for index in range(layers):
        yield Template(_FUSED).substitute(_NAMES, i=index)
    yield "ENTRY %main {\n"
    given = {"x.0": "x", "scale": "scale", **_WEIGHTS}
    for number, (name, shape) in enumerate(given.items()):
        yield f"  %{name} = {_NAMES[shape]} parameter({number})\n"
    for index in range(layers):
        for name, shape in _WEIGHTS.items():
            yield Template(_PREFETCH).substitute(w=name, shape=_NAMES[shape], i=index)
        yield Template(_LAYER).substitute(_NAMES, i=index, next=index + 1)
    yield f"  ROOT %out = {_NAMES['x']} copy(%x.{layers})\n}}\n"
