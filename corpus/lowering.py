"""From a model of the zoo to the HLO that XLA would be given for a TPU, without a TPU.

A step is `(weights, slots, states, inputs, key, count) -> new values and the loss` for training and
`(weights, states, inputs) -> outputs` for inference. It is traced on abstract arguments and lowered
with `lowering_platforms=("tpu",)`, so nothing is allocated, compiled or run.

Optimisers are tables of three facts: slots per weight, the update, whether gradients are clipped.
Each update is the published rule for one weight tensor; a training step applies it to every weight,
as the frameworks do, which is why a long tail of small elementwise kernels belongs to training steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpus.context import Abstract, Ctx
from costbench.errors import choose

if TYPE_CHECKING:
    from jax import Array

Build = Callable[[Ctx], Any]
Slots = Sequence["Array"]
Updated = tuple["Array", tuple["Array", ...]]  # new weight, new slots
Update = Callable[["Array", "Array", Slots, "Array"], Updated]  # gradient, weight, slots, step count


def lower_for_tpu(build: Build, context: Ctx, optimizer: str) -> bytes:
    """Returns the serialised HloModuleProto of the step, as JAX emits it.

    Args:
        build: model; returns a scalar loss when `context.train`, any tree of arrays otherwise.
        context: fresh context with batch, step and dtype.
        optimizer: name in `OPTIMIZERS`; not looked at for inference.

    Raises:
        ChoiceError: there is no such optimiser.
    """
    import jax

    struct: Any = jax.ShapeDtypeStruct  # which has no types

    def abstract(arguments: Sequence[Abstract]) -> list[Any]:
        return [struct(argument.shape, argument.dtype) for argument in arguments]

    jax.eval_shape(lambda: build(context))
    signature = context.recorded()
    params, states, inputs = map(abstract, (signature.params, signature.states, signature.inputs))
    key = abstract([Abstract((4,), "uint32")])[0] if signature.draws else None
    if context.train:
        rule = choose(OPTIMIZERS, optimizer, "optimizer")
        slots = [abstract([Abstract(param.shape, "float32")] * rule.slots) for param in signature.params]
        step = jax.jit(_training_step(build, context, rule), keep_unused=False)
        count = abstract([Abstract((), "int32")])[0]
        traced = step.trace(params, slots, states, inputs, key, count)
    else:
        step = jax.jit(lambda *arguments: build(context.replay(*arguments)), keep_unused=False)
        traced = step.trace(params, states, inputs, key)
    lowered = traced.lower(lowering_platforms=("tpu",))
    proto: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return proto


def _training_step(build: Build, context: Ctx, rule: Optimizer) -> Callable[..., Any]:
    import jax

    def step(
        params: list[Array], slots: list[list[Array]], states: list[Array],
        inputs: list[Array], key: Array | None, count: Array,
    ) -> Any:  # fmt: skip
        def loss_of(weights: list[Array]) -> tuple[Array, list[Array]]:
            replayed = context.replay(weights, states, inputs, key)
            return build(replayed).astype("float32"), replayed.new_states

        (loss, new_states), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        if rule.clip_norm:
            gradients = clip_by_global_norm(gradients, rule.clip_norm)
        updated = [
            rule.update(gradient, param, slot, count)
            for gradient, param, slot in zip(gradients, params, slots, strict=True)
        ]
        return [new for new, _ in updated], [slot for _, slot in updated], new_states, loss, count + 1

    return step


@dataclass(frozen=True)
class Optimizer:
    """Slots per weight (float32, shaped like it), the update rule, the global-norm clip (0: none)."""

    slots: int
    update: Update
    clip_norm: float = 0.0


def _sgd(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """w - lr g"""
    return weight - 0.1 * gradient, ()


def _momentum(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """m = 0.9 m + (g + 1e-4 w); w - lr m (weight decay as in ResNet training)"""
    momentum = 0.9 * slots[0] + gradient + 1e-4 * weight
    return weight - 0.1 * momentum, (momentum,)


def _lars(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """m = 0.9 m + lr 1e-3 |w| / (|g| + 1e-4 |w|) (g + 1e-4 w); w - m (You et al. 2017, algorithm 1)"""
    import jax.numpy as jnp

    weight_norm, gradient_norm = jnp.sqrt(jnp.sum(weight**2)), jnp.sqrt(jnp.sum(gradient**2))
    has_norms = (weight_norm > 0) & (gradient_norm > 0)
    trust = jnp.where(has_norms, 1e-3 * weight_norm / (gradient_norm + 1e-4 * weight_norm), 1.0)
    momentum = 0.9 * slots[0] + 10.0 * trust * (gradient + 1e-4 * weight)
    return weight - momentum, (momentum,)


def _rmsprop(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """s = 0.9 s + 0.1 g^2; m = 0.9 m + lr g / sqrt(s + eps); w - m"""
    import jax.numpy as jnp

    square = 0.9 * slots[0] + 0.1 * jnp.square(gradient)
    momentum = 0.9 * slots[1] + 0.045 * gradient / jnp.sqrt(square + 1e-3)
    return weight - momentum, (square, momentum)


def _adam_direction(gradient: Array, slots: Slots, count: Array) -> Updated:
    import jax.numpy as jnp

    first = 0.9 * slots[0] + 0.1 * gradient
    second = 0.999 * slots[1] + 0.001 * jnp.square(gradient)
    steps = count.astype("float32") + 1.0
    unbiased = first / (1.0 - 0.9**steps)
    spread = jnp.sqrt(second / (1.0 - 0.999**steps)) + 1e-6
    return unbiased / spread, (first, second)


def _adam(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """w - lr m^ / (sqrt(v^) + eps)"""
    direction, slots = _adam_direction(gradient, slots, count)
    return weight - 1e-3 * direction, tuple(slots)


def _lamb(gradient: Array, weight: Array, slots: Slots, count: Array) -> Updated:
    """w - lr (|w| / |u|) u with u the Adam direction plus weight decay"""
    import jax.numpy as jnp

    direction, slots = _adam_direction(gradient, slots, count)
    update = direction + 0.01 * weight
    weight_norm, update_norm = jnp.sqrt(jnp.sum(weight**2)), jnp.sqrt(jnp.sum(update**2))
    trust = jnp.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
    return weight - 1e-3 * trust * update, tuple(slots)


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(0, _sgd),
    "sgd_clipped": Optimizer(0, _sgd, clip_norm=5.0),
    "momentum": Optimizer(1, _momentum),
    "lars": Optimizer(1, _lars),
    "rmsprop": Optimizer(2, _rmsprop),
    "adam": Optimizer(2, _adam),
    "adam_clipped": Optimizer(2, _adam, clip_norm=1.0),
    "lamb": Optimizer(2, _lamb),
}


def clip_by_global_norm(gradients: Sequence[Array], limit: float) -> list[Array]:
    """Returns gradients scaled by min(1, limit / |all of them|)."""
    import jax.numpy as jnp

    norm = jnp.sqrt(sum((jnp.sum(jnp.square(gradient)) for gradient in gradients), jnp.float32(0)))
    scale = jnp.minimum(1.0, limit / (norm + 1e-6))
    return [gradient * scale for gradient in gradients]
