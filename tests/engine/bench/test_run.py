"""What a benchmark plans for, and how it ends where a subject cannot be measured."""

import pytest

from ninfer.engine.bench.run import CannotMeasure, Given, Wish, check_memory, measure_subject
from ninfer.engine.bench.subject import memory_of
from tests.engine.programs.stacked.models import SMALL


def wish(*, batches: tuple[int, ...] = (1,), contexts: tuple[int, ...] = (), prompts: tuple[int, ...] = ()) -> Wish:
    return Wish(batches=batches, contexts=contexts, prompts=prompts, chunk_tokens=64, steps=2, runs=1)


@pytest.mark.parametrize(
    ("asked", "longest_tokens", "pages"),
    [
        (wish(), 64, 1),
        (wish(contexts=(65, 200)), 200, 4),
        (wish(batches=(1, 8), contexts=(65, 200)), 200, 32),
        (wish(batches=(2,), contexts=(128,), prompts=(1000,)), 1000, 16),
    ],
)
def test_the_pool_holds_the_most_demanding_point(asked: Wish, longest_tokens: int, pages: int) -> None:
    assert (asked.longest_tokens, asked.pool_pages) == (longest_tokens, pages)


@pytest.mark.parametrize(
    ("recipe", "kv_format", "says"),
    [
        ("fp32", "int8", "fp32, KV int8: recipe fp32 keeps keys and values in fp32, not in int8"),
        ("q4", "vq2", "q4, KV vq2: recipe q4 with keys and values in vq2: there are recipes fp32, "),
    ],
)
def test_what_cannot_be_measured_is_one_line(recipe: str, kv_format: str, says: str) -> None:
    given = Given(name="small", config=SMALL, subjects=((recipe, kv_format),), command="bench")
    with pytest.raises(CannotMeasure) as caught:
        measure_subject(given, recipe, kv_format, wish(), lambda what: None)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("recipe", "kv_format"), [("fp32", "fp32"), ("q4", "int8")])
def test_what_does_not_fit_is_told_before_anything_is_made(recipe: str, kv_format: str) -> None:
    asked = wish(batches=(1, 8), contexts=(65, 200))
    needs = memory_of(SMALL, recipe, kv_format, lanes=8, longest_tokens=200, chunk_tokens=64)
    enough = needs.fixed_bytes + asked.pool_pages * needs.page_bytes
    check_memory(SMALL, recipe, kv_format, asked, enough)
    check_memory(SMALL, recipe, kv_format, asked, None)
    with pytest.raises(CannotMeasure) as caught:
        check_memory(SMALL, recipe, kv_format, asked, enough - 1)
    assert str(caught.value).startswith(f"{recipe}, KV {kv_format}: too little memory: ")
    assert str(caught.value).endswith("a smaller --batch or shorter contexts")
