"""The recording context: what is recorded on the first run is handed out, in order, on the second."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.context import Abstract, Ctx, Tape
from corpus.lowering import lower_for_tpu
from costbench.errors import ChoiceError

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402


def model(c: Ctx) -> Any:
    """y = x w + s, with a random bit and a state that is replaced."""
    y = c.input(c.batch, 3) @ c.weight(3, 2) + c.state(2).astype(c.dtype)
    c.new_states.append(jnp.ones(2))
    return y + (c.random_bits(2) & 1).astype(c.dtype)


def test_shapes_are_recorded_by_kind() -> None:
    c = Ctx(5, train=False, dtype="bf16")
    out = jax.eval_shape(lambda: model(c))
    recorded = c.recorded()
    assert (out.shape, str(out.dtype)) == ((5, 2), "bfloat16")
    assert recorded.params == (Abstract((3, 2), "float32"),)
    assert recorded.states == (Abstract((2,), "float32"),)
    assert recorded.inputs == (Abstract((5, 3), "bfloat16"),)
    assert recorded.draws


def test_the_second_run_uses_the_arrays_it_is_given() -> None:
    c = Ctx(1, train=False, dtype="f32")
    jax.eval_shape(lambda: model(c))
    again = c.replay(
        [jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])],
        [jnp.array([10.0, 20.0])],
        [jnp.ones((1, 3))],
        jnp.zeros(4, "uint32"),
    )
    # Column sums are 9 and 12; the random bit adds 0 or 1.
    out = model(again) - jnp.array([[19.0, 32.0]])
    assert out.tolist()[0][0] in (0.0, 1.0)
    assert out.tolist()[0][1] in (0.0, 1.0)
    assert [one.tolist() for one in again.new_states] == [[1.0, 1.0]]


def test_sites_draw_different_bits_from_one_key() -> None:
    c = Ctx(1, train=True, dtype="f32").replay([], [], [], jnp.arange(4, dtype="uint32"))
    assert not jnp.array_equal(c.random_bits(8), c.random_bits(8))


def test_tied_layers_have_the_weights_of_the_first() -> None:
    def twice(c: Ctx) -> Any:
        x, weights = c.input(1, 2), list[Any]()
        for _ in range(2):
            with c.tied(weights):
                x = x @ c.weight(2, 2) + c.weight32(2)
        return x * c.weight(2)

    c = Ctx(1, train=False, dtype="f32")
    jax.eval_shape(lambda: twice(c))
    assert c.recorded().params == (
        Abstract((2, 2), "float32"), Abstract((2,), "float32"), Abstract((2,), "float32")
    )  # fmt: skip
    given = [jnp.array([[0.0, 1.0], [2.0, 0.0]]), jnp.array([10.0, 20.0]), jnp.array([1.0, -1.0])]
    # (1, 2) -> (4 + 10, 1 + 20) -> (42 + 10, 14 + 20)
    assert twice(c.replay(given, [], [jnp.array([[1.0, 2.0]])], None)).tolist() == [[52.0, -34.0]]


def test_tied_layers_cannot_ask_for_other_weights() -> None:
    c = Ctx(1, train=False, dtype="f32")
    weights: list[Any] = []
    with c.tied(weights):
        c.weight(2, 3)
    with (
        pytest.raises(ValueError, match=r"argument 0 is \(2, 3\) float32, asked for .*\(3, 2\)"),
        c.tied(weights),
    ):
        c.weight(3, 2)


def test_asking_for_something_else_on_the_second_run_is_an_error() -> None:
    tape = Tape([jnp.zeros((2, 3))])
    with pytest.raises(ValueError, match=r"argument 0 is \(2, 3\) float32, asked for .*\(3, 2\)"):
        tape.take((3, 2), "float32")


def test_an_unknown_dtype_lists_the_choices() -> None:
    with pytest.raises(ChoiceError, match=r"unknown dtype 'f16'.*'bf16'\? \(expected one of bf16, f32\)"):
        Ctx(1, train=True, dtype="f16")


def test_an_unknown_optimizer_lists_the_choices() -> None:
    with pytest.raises(ChoiceError, match=r"unknown optimizer 'adagrad'.*adam.*sgd"):
        lower_for_tpu(lambda c: jnp.sum(c.weight(2)), Ctx(1, train=True, dtype="f32"), "adagrad")
