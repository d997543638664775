"""The engine's face: what its values refuse."""

import pytest

from ninfer.engine.types import EngineLimits, Prompt, Sampling


@pytest.mark.contract("EXEC-001", "D38")
@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"lanes": 0}, "lanes"),
        ({"lanes": 9}, "lanes"),
        ({"max_context_tokens": 0}, "max_context_tokens"),
        ({"kv_capacity_tokens": 63}, "kv_capacity_tokens"),
        ({"prefill_chunk_tokens": 63}, "prefill_chunk_tokens"),
        ({"prefill_chunk_tokens": 100}, "no multiple of 64"),
    ],
)
def test_limits_that_no_engine_has(wrong: dict[str, int], name: str) -> None:
    right = {"max_context_tokens": 100, "lanes": 8, "kv_capacity_tokens": 64, "prefill_chunk_tokens": 64}
    EngineLimits(**right)
    with pytest.raises(ValueError, match=name):
        EngineLimits(**{**right, **wrong})


def test_a_prompt_has_a_token() -> None:
    with pytest.raises(ValueError, match="tokens"):
        Prompt(())


@pytest.mark.contract("SAMP-006")
@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1.0}, {"top_k": 21}, {"top_k": -1}, {"top_p": 1.1}, {"min_p": -0.1}, {"seed": 1 << 63}],
    ids=str,
)
def test_samplers_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampling(**{"temperature": 1.0, **wrong})  # type: ignore[arg-type]
