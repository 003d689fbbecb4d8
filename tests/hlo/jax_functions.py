"""Small JAX functions of every kind that users have; run as a program, it writes them as HLO of both forms.

`python -m tests.hlo.jax_functions FOLDER` writes for each function what JAX hands to XLA (`NAME-lowered`, for
a TPU) and what XLA made of it for eight devices of the CPU (`NAME-compiled`), as text and as binary messages,
and `xla.json` with the FLOPs and transcendental operations that XLA counts in them. It is a program of its
own since JAX fixes the number of devices of a process when it is first used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

NUM_DEVICES = 8


def of(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """Returns the description of an array; nothing is computed with it."""
    return jax.ShapeDtypeStruct(shape, dtype)


def convolve(x: Any, w: Any, **options: Any) -> Any:
    settings = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings)


def recurrent(weights: Any, inputs: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        state = jnp.tanh(x @ weights + state)
        return state, state

    return lax.scan(cell, jnp.zeros(inputs.shape[1:]), inputs)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8.0
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def loss(weights: Any, x: Any) -> Any:
    hidden = max_pool(jax.nn.relu(convolve(x, weights["conv"])))
    return jnp.mean(jax.nn.log_softmax(hidden.reshape(len(x), -1) @ weights["dense"])[:, 0])


def newton(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.max(jnp.abs(y * y - x)) > 1e-3, lambda y: (y + x / y) / 2.0, x)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def branches(i: Any, x: Any) -> Any:
    return lax.switch(i, [jnp.sin, lambda y: y @ y, lambda y: y[::-1]], x)


def sampled(key: Any) -> Any:
    return jax.random.normal(jax.random.wrap_key_data(key, impl="rbg"), (64, 128))


def updated(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, y: lax.dynamic_update_slice(y, y[:1] * 2.0, (i, 0)), x)


def across(body: Callable[..., Any], *, out: PartitionSpec | None = None) -> Callable[..., Any]:
    """Returns a function that runs `body` on parts of the first axis, a part on each device."""
    rows = PartitionSpec("x")

    def run(x: Any) -> Any:
        mesh = jax.make_mesh((NUM_DEVICES,), ("x",), (AxisType.Auto,))
        return jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=rows if out is None else out)(x)

    return run


def sharded_layer(x: Any, w: Any) -> Any:
    mesh = jax.make_mesh((2, 4), ("data", "model"), (AxisType.Auto, AxisType.Auto))
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("data", None)))
    w = lax.with_sharding_constraint(w, NamedSharding(mesh, PartitionSpec(None, "model")))
    return lax.with_sharding_constraint(jnp.tanh(x @ w) @ w.T, NamedSharding(mesh, PartitionSpec("data")))


def sharded_steps(x: Any, w: Any) -> Any:
    return lax.scan(lambda y, _: (sharded_layer(y, w), y.sum()), x, None, length=6)


IMAGE, FILTER, SQUARE = of(4, 16, 16, 8), of(3, 3, 8, 16), of(64, 64)
WEIGHTS = {"conv": FILTER, "dense": of(8 * 8 * 16, 10)}
HEADS = of(2, 32, 4, 64)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "dense": (lambda x, w, b: jnp.tanh(x @ w + b), (of(32, 64), of(64, 128), of(128))),
    "mixed_precision": (
        lambda x, w: (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32),
        (of(32, 64), of(64, 128)),
    ),
    "int8": (
        lambda x, w: jnp.dot(x, w, preferred_element_type=jnp.int32),
        (of(32, 64, dtype=jnp.int8), of(64, 128, dtype=jnp.int8)),
    ),
    "batched": (jax.vmap(jnp.dot), (of(8, 16, 32), of(8, 32, 16))),
    "attention": (attention, (HEADS, HEADS, HEADS)),
    "attention_gradient": (jax.grad(lambda q, k, v: attention(q, k, v).sum()), (HEADS, HEADS, HEADS)),
    "softmax": (jax.nn.softmax, (of(64, 128),)),
    "layer_norm": (layer_norm, (of(64, 128),)),
    "gelu": (jax.nn.gelu, (of(64, 128),)),
    "special": (lambda x: jnp.log1p(jnp.abs(x)) + lax.erf(x) + lax.lgamma(x), (of(64, 128),)),
    "convolution": (convolve, (IMAGE, FILTER)),
    "convolution_strided": (partial(convolve, window_strides=(2, 2), padding="VALID"), (IMAGE, FILTER)),
    "convolution_grouped": (partial(convolve, feature_group_count=8), (IMAGE, of(3, 3, 1, 16))),
    "convolution_dilated": (
        partial(convolve, padding=((1, 1), (2, 0)), lhs_dilation=(2, 2), rhs_dilation=(2, 1)), (IMAGE, FILTER)
    ),
    "train_step": (jax.value_and_grad(loss), (WEIGHTS, IMAGE)),
    "pooling": (max_pool, (IMAGE,)),
    "pooling_gradient": (jax.grad(lambda x: max_pool(x).sum()), (IMAGE,)),
    "scan": (recurrent, (SQUARE, of(10, 64, 64))),
    "scan_gradient": (jax.grad(lambda w, x: recurrent(w, x)[0].sum()), (SQUARE, of(10, 64, 64))),
    "rematerialised": (
        jax.grad(lambda w, x: jax.checkpoint(recurrent)(w, x)[0].sum()), (SQUARE, of(10, 64, 64))
    ),
    "while": (newton, (of(128),)),
    "fori": (updated, (of(8, 128),)),
    "cond": (lambda p, x: lax.cond(p, jnp.exp, jnp.negative, x), (of(dtype=jnp.bool_), of(64, 128))),
    "switch": (branches, (of(dtype=jnp.int32), SQUARE)),
    "map": (lambda x: lax.map(layer_norm, x), (of(6, 16, 32),)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), (of(16, 128),)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (of(16, 128),)),
    "sort": (lambda x: lax.sort_key_val(x, x[::-1]), (of(256),)),
    "top_k": (lambda x: lax.top_k(x, 5), (of(16, 128),)),
    "argmax": (lambda x: jnp.argmax(x, axis=1), (of(16, 128),)),
    "embedding": (lambda t, i: t[i], (of(1000, 64), of(32, dtype=jnp.int32))),
    "scatter_add": (
        lambda t, i, u: t.at[i].add(u), (of(1000, 64), of(32, dtype=jnp.int32), of(32, 64))
    ),
    "dynamic_slice": (
        lambda x, i: lax.dynamic_slice(x, (i, 0), (4, 128)), (of(64, 128), of(dtype=jnp.int32))
    ),
    "movement": (
        lambda x: jnp.pad(jnp.concatenate([x[::2], x[::-1].T.reshape(64, 128)]), ((1, 2), (0, 0))),
        (of(64, 128),),
    ),
    "bits": (
        lambda x: lax.bitcast_convert_type(x, jnp.uint8).sum(-1, dtype=jnp.uint8), (of(64, 128),)
    ),
    "integers": (lambda x: lax.population_count(x) % 7 + (x >> 3), (of(64, 128, dtype=jnp.int32),)),
    "complex": (lambda x: jnp.abs(jnp.fft.fft2(x)), (of(16, 16),)),
    "random": (sampled, (of(4, dtype=jnp.uint32),)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x), (SQUARE,)),
    "empty": (lambda x, w: jnp.tanh(x @ w).sum(0), (of(0, 64), of(64, 128))),
    "tuples": (lambda x: {"a": x.max(0), "b": (x.min(1), x.prod())}, (of(64, 128),)),
    "sharded_layer": (sharded_layer, (of(64, 128), of(128, 256))),
    "sharded_scan": (sharded_steps, (of(64, 128), of(128, 256))),
    "all_reduce": (across(lambda x: lax.psum(x * 2.0, "x"), out=PartitionSpec()), (of(64, 128),)),
    "all_gather": (across(lambda x: lax.all_gather(x, "x").sum(0)), (of(64, 128),)),
    "reduce_scatter": (across(lambda x: lax.psum_scatter(x, "x", tiled=True)), (of(512, 128),)),
    "all_to_all": (across(lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True)), (of(64, 128),)),
    "permute": (
        across(lambda x: lax.ppermute(x, "x", [(i, (i + 1) % NUM_DEVICES) for i in range(NUM_DEVICES)])),
        (of(64, 128),),
    ),
}  # fmt: skip


def write(folder: Path) -> None:
    """Writes every function of `FUNCTIONS` into a folder."""
    from jaxlib import _hlo, _jax

    client = jax.local_devices(backend="cpu")[0].client
    counted = {}
    for name, (function, arguments) in FUNCTIONS.items():
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        compiled = jax.jit(function).lower(*arguments).compile()
        text = _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string()
        (made,) = compiled.runtime_executable().hlo_modules()
        for form, message, dump in (
            ("lowered", proto, text),
            ("compiled", made.as_serialized_hlo_module_proto(), compiled.as_text()),
        ):
            stem = f"{name}-{form}"
            (folder / f"{stem}.hlo.pb").write_bytes(message)
            (folder / f"{stem}.hlo.txt").write_text(dump)
            module = _hlo.HloModule.from_serialized_hlo_module_proto(message)
            cost = _jax.hlo_module_cost_analysis(client, module)
            counted[stem] = {key: cost.get(key, 0.0) for key in ("flops", "transcendentals")}
    (folder / "xla.json").write_text(json.dumps(counted, indent=1))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", NUM_DEVICES)
    write(Path(sys.argv[1]))
