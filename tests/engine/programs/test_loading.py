"""Weights that are loaded while programs are compiled: what was loaded is used, errors leave no thread behind."""

import threading
from collections.abc import Callable

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer.engine.device import DecodeRow, PrefillUnit
from ninfer.engine.programs import JaxDevice
from ninfer.engine.programs.form import Memory, StepOutput, Tree
from tests.engine.programs.drive import Lane, decode


@attrs.frozen
class OneNumber:
    """The smallest form: its one weight is the token that it always chooses."""

    weights: Tree
    vocab_size: int = 8
    activation_bits: int = 32

    def zero_memory(self, *, pages: int, slots: int, table_pages: int) -> Memory:
        return Memory(text=jnp.zeros(1), last_token=jnp.zeros(slots, jnp.int32), counts=jnp.zeros((slots, 8), int))

    def chunk_buckets(self, chunk_tokens: int) -> tuple[int, ...]:
        return (chunk_tokens,)

    def pack_prefill(self, unit: PrefillUnit, *, table_pages: int, tokens: int) -> np.ndarray:
        return np.zeros(1, np.int32)

    def pack_decode(self, rows: tuple[DecodeRow, ...], *, table_pages: int) -> np.ndarray:
        return np.zeros(1, np.int32)

    def prefill_step(
        self, used_tokens: int, table_pages: int, weights: Tree, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        return self.decode_step(used_tokens, weights, memory, plan)

    def decode_step(
        self, used_tokens: int, weights: Tree, memory: Memory, plan: jax.Array
    ) -> tuple[Memory, StepOutput]:
        return memory, StepOutput(jnp.array([[0], [0]]).at[0, 0].set(weights[0]), jnp.zeros((1, 8)))


def device(weights: Tree, load: Callable[[], Tree] | None) -> JaxDevice:
    return JaxDevice(
        OneNumber(weights), lanes=1, total_pages=1, prefill_chunk_tokens=64, max_context_tokens=64, load=load
    )


def tokens(made: JaxDevice) -> list[int]:
    made.prepare()
    lane = Lane(made, 0, (0,), (1, 2, 3))
    lane.prefill(64)
    decode([lane], 2)
    return lane.tokens


def test_programs_are_compiled_for_shapes_and_called_with_what_was_loaded() -> None:
    numbers = jnp.array([5], jnp.int32)
    assert tokens(device(numbers, None)) == [5, 5, 5]
    assert tokens(device(jax.ShapeDtypeStruct((1,), jnp.int32), lambda: numbers)) == [5, 5, 5]


def test_programs_are_compiled_meanwhile() -> None:
    compiled = threading.Event()

    def load() -> Tree:
        assert compiled.wait(60)
        return jnp.array([6], jnp.int32)

    def tell(name: str, done: int, total: int) -> None:
        if name == "decode 1":  # the one before it is there
            compiled.set()

    form = OneNumber(jax.ShapeDtypeStruct((1,), jnp.int32))
    sizes = {"lanes": 1, "total_pages": 1, "prefill_chunk_tokens": 64, "max_context_tokens": 64}
    assert tokens(JaxDevice(form, **sizes, load=load, progress=tell)) == [6, 6, 6]


@pytest.mark.parametrize("weights", [jax.ShapeDtypeStruct((1,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)])
def test_an_error_of_loading_or_compiling_is_the_start_s(weights: jax.ShapeDtypeStruct) -> None:
    def load() -> Tree:
        raise OSError("no such block")

    before = threading.active_count()
    # A weight without an axis cannot be indexed: compiling fails, and is told of first.
    with pytest.raises((OSError, TypeError, IndexError), match="block" if weights.shape else "ind"):
        device(weights, load).prepare()
    assert threading.active_count() == before
