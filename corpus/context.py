"""The recording context from which a model of the zoo requests its weights, inputs and random bits.

A model is one function of a `Ctx`. It asks for what it needs (`weight`, `state`, `input`, `rng`) at
the place where it uses it, so no shape is declared twice. The function is run twice: once under
`jax.eval_shape`, where the context records what was asked for and hands out zeros that cost no
memory, and once under `jax.jit`, where it hands out the traced arguments in the same order. No
weight is ever initialised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costbench.errors import choose

if TYPE_CHECKING:
    from jax import Array

DTYPES = {"f32": "float32", "bf16": "bfloat16"}
# Neighbouring sites must not draw the same bits from one step key; any odd constant does.
_SITE_STRIDE = 0x9E3779B9


@dataclass(frozen=True)
class Abstract:
    """Shape and dtype name of one argument of the step."""

    shape: tuple[int, ...]
    dtype: str


class Tape:
    """Arrays requested in a fixed order: recorded on the first run, handed out on the second."""

    def __init__(self, values: Sequence[Array] | None = None) -> None:
        self._values = values
        self.requested: list[Abstract] = []

    def take(self, shape: Sequence[int], dtype: str) -> Array:
        """Returns the next array: zeros while recording, else the argument that was recorded at this place.

        Raises:
            ValueError: the second run asks for something else than the first; parameters must then
                have been asked for inside a loop body, which is traced more than once.
        """
        import jax.numpy as jnp

        request = Abstract(tuple(int(extent) for extent in shape), str(dtype))
        self.requested.append(request)
        if self._values is None:
            return jnp.zeros(request.shape, request.dtype)
        value = self._values[len(self.requested) - 1]
        if (value.shape, str(value.dtype)) != (request.shape, request.dtype):
            index = len(self.requested) - 1
            raise ValueError(f"argument {index} is {value.shape} {value.dtype}, asked for {request}")
        return value


class _SharedTape(Tape):
    """Forwards requests to another tape and appends the arrays that it returns to a list."""

    def __init__(self, tape: Tape, weights: list[Array]) -> None:
        super().__init__()
        self._tape, self._weights = tape, weights

    def take(self, shape: Sequence[int], dtype: str) -> Array:
        value = self._tape.take(shape, dtype)
        self._weights.append(value)
        return value


@dataclass(frozen=True)
class Recorded:
    """The arrays that a model requested: the signature of its step without the optimiser's slots."""

    params: tuple[Abstract, ...]
    states: tuple[Abstract, ...]
    inputs: tuple[Abstract, ...]
    draws: bool


class Ctx:
    """The interface that models of the zoo are written against.

    Attributes:
        batch: number of examples per step.
        train: whether the program is a training step (the model then returns a scalar loss).
        dtype: name of the compute dtype, `float32` or `bfloat16`. Weights are kept in float32.
        new_states: values that replace the states after the step, in order.
    """

    def __init__(self, batch: int, train: bool, dtype: str) -> None:
        self.batch = batch
        self.train = train
        self.dtype = choose(DTYPES, dtype, "dtype")
        self.new_states: list[Array] = []
        self._params, self._states, self._inputs = Tape(), Tape(), Tape()
        self._key: Array | None = None
        self._sites = 0

    def replay(
        self, params: Sequence[Array], states: Sequence[Array], inputs: Sequence[Array], key: Array | None
    ) -> Ctx:
        """Returns a context like this one that hands out these arrays."""
        other = Ctx(self.batch, self.train, "bf16" if self.dtype == "bfloat16" else "f32")
        other._params, other._states, other._inputs = Tape(params), Tape(states), Tape(inputs)
        other._key = key
        return other

    def recorded(self) -> Recorded:
        """Returns the arrays requested so far."""
        params, states, inputs = (
            tuple(tape.requested) for tape in (self._params, self._states, self._inputs)
        )
        return Recorded(params, states, inputs, draws=self._sites > 0)

    def weight(self, *shape: int) -> Array:
        """Returns a trainable float32 weight, cast to the compute dtype."""
        return self._params.take(shape, "float32").astype(self.dtype)

    def weight32(self, *shape: int, dtype: str = "float32") -> Array:
        """Returns a trainable weight in its own dtype: norms, and whatever is precision-sensitive."""
        return self._params.take(shape, dtype)

    @contextmanager
    def tied(self, weights: list[Array]) -> Iterator[None]:
        """Hands out `weights`, in order, within this block: layers run again with the same weights.

        An empty list is filled the first time instead, with the weights that were then new.

        Raises:
            ValueError: the layers ask for other weights than the first time.
        """
        params = self._params
        self._params = Tape(tuple(weights)) if weights else _SharedTape(params, weights)
        try:
            yield
        finally:
            self._params = params

    def state(self, *shape: int, dtype: str = "float32") -> Array:
        """Returns an array that the step carries on but does not train, such as moving statistics."""
        return self._states.take(shape, dtype)

    def input(self, *shape: int, dtype: str | None = None) -> Array:
        """Returns an array fed from outside, in the compute dtype unless another is named."""
        return self._inputs.take(shape, dtype or self.dtype)

    def tokens(self, *shape: int) -> Array:
        """Returns integer identifiers fed from outside (int32)."""
        return self._inputs.take(shape, "int32")

    def rng(self) -> Any:
        """Returns a fresh random key for `jax.random`, drawing with RngBitGenerator as TPU programs do."""
        import jax
        import jax.numpy as jnp

        self._sites += 1
        key = jnp.zeros((4,), "uint32") if self._key is None else self._key
        site = jnp.uint32(self._sites * _SITE_STRIDE % 2**32)
        return jax.random.wrap_key_data(key + site, impl="unsafe_rbg")

    def random_bits(self, *shape: int) -> Array:
        """Returns uniform uint32 values: one RngBitGenerator instruction."""
        import jax

        return jax.random.bits(self.rng(), shape, "uint32")
