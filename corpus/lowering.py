"""From a model of the zoo to the HLO that XLA would be given for a TPU, without a TPU.

A step is `(weights, slots, states, inputs, key, count) -> new values and the loss` for training and
`(weights, states, inputs) -> outputs` for inference. It is traced on abstract arguments and lowered
with `lowering_platforms=("tpu",)`, so nothing is allocated, compiled or run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from corpus.context import Abstract, Ctx, Recorded
from corpus.optimizers import OPTIMIZERS, Optimizer, clip_by_global_norm
from costbench.errors import choose

if TYPE_CHECKING:
    from jax import Array

Build = Callable[[Ctx], Any]


def lower_for_tpu(build: Build, context: Ctx, optimizer: str) -> bytes:
    """Serialised HloModuleProto of the step, as JAX emits it.

    Args:
        build: the model; returns a scalar loss when `context.train`, any tree of arrays otherwise.
        context: a fresh context with batch, step and dtype.
        optimizer: a name of `OPTIMIZERS`; not looked at for inference.

    Raises:
        ChoiceError: there is no such optimiser.
    """
    import jax

    jax.eval_shape(lambda: build(context))
    signature = context.recorded()
    if context.train:
        rule = choose(OPTIMIZERS, optimizer, "optimizer")
        step, arguments = _training_step(build, context, rule), _training_arguments(signature, rule)
    else:
        step, arguments = _inference_step(build, context), _inference_arguments(signature)
    traced = jax.jit(step, keep_unused=False).trace(*arguments)
    lowered = traced.lower(lowering_platforms=("tpu",))
    proto: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return proto


def _shapes(asked: Sequence[Abstract]) -> list[Any]:
    import jax

    abstract: Any = jax.ShapeDtypeStruct
    return [abstract(one.shape, one.dtype) for one in asked]


def _key_shape(signature: Recorded) -> Any:
    return _shapes([Abstract((4,), "uint32")])[0] if signature.draws else None


def _training_arguments(signature: Recorded, rule: Optimizer) -> tuple[Any, ...]:
    slots = [_shapes([Abstract(param.shape, "float32")] * rule.slots) for param in signature.params]
    count = _shapes([Abstract((), "int32")])[0]
    parts = (signature.params, signature.states, signature.inputs)
    params, states, inputs = (_shapes(part) for part in parts)
    return params, slots, states, inputs, _key_shape(signature), count


def _inference_arguments(signature: Recorded) -> tuple[Any, ...]:
    parts = (signature.params, signature.states, signature.inputs)
    return (*(_shapes(part) for part in parts), _key_shape(signature))


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


def _inference_step(build: Build, context: Ctx) -> Callable[..., Any]:
    def step(params: list[Array], states: list[Array], inputs: list[Array], key: Array | None) -> Any:
        return build(context.replay(params, states, inputs, key))

    return step
