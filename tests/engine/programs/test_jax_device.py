"""The device port with JAX, on the golden model: tokens, penalties, forced tokens, faults, and no compiling later."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from ninfer.engine.device import Device, PrefillUnit
from ninfer.engine.programs import JaxDevice, PerLayer
from ninfer.engine.types import Sampling
from tests.engine.model.golden import bits, golden, shallow
from tests.engine.programs.conftest import CHUNK_TOKENS, CONTEXT_TOKENS, LANES, POOL_PAGES
from tests.engine.programs.drive import GREEDY, Lane, decode, pages_for
from tests.engine.sampling.reference import draw

PROMPTS, GOLDEN_GREEDY, EXPECTED = golden().prompts, golden().greedy, golden().expected


def lane(device: JaxDevice, index: int, *, slot: int = 0, first_page: int = 0, sampling: Sampling = GREEDY) -> Lane:
    return Lane(device, slot, pages_for(200, range(first_page, POOL_PAGES)), PROMPTS[index], sampling)


def test_it_is_a_device(device: Device) -> None:
    assert (device.total_pages, device.total_slots) == (POOL_PAGES, LANES)
    assert device.compilations == 2 + LANES


@pytest.mark.contract("SAMP-005")
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("chunk_tokens", [64, 128, CHUNK_TOKENS])
def test_greedy_tokens_are_golden(device: JaxDevice, index: int, chunk_tokens: int) -> None:
    one = lane(device, index, slot=2, first_page=3)
    one.prefill(chunk_tokens)
    decode([one], len(GOLDEN_GREEDY[index]) - 1)
    assert tuple(one.tokens) == GOLDEN_GREEDY[index]
    np.testing.assert_allclose(np.stack(one.logits), EXPECTED[f"p{index}.greedy_logits"], atol=1e-3)


def test_dispatch_runs_ahead_of_reading(device: JaxDevice) -> None:
    """The token of step t reaches step t + 1 on the device, before the host has read it."""
    one = lane(device, 1)
    one.prefill(CHUNK_TOKENS)
    pending = []
    for _ in range(15):
        pending.append(device.decode((one.row(),)))
        one.tokens.append(-1)  # not read yet: only the count matters
    assert tuple(unit.read().tokens[0] for unit in pending) == GOLDEN_GREEDY[1][1:]


def test_sampled_tokens_are_the_reference_s(device: JaxDevice) -> None:
    """Penalties count generated tokens only, from the first one on; the counter is the token's position."""
    sampling = Sampling(temperature=0.8, top_p=0.95, presence_penalty=0.7, frequency_penalty=0.4, seed=-(2**62) - 5)
    one = lane(device, 0, sampling=sampling)
    one.prefill(CHUNK_TOKENS)
    decode([one], 24)
    counts, compared = np.zeros(golden().config.vocab_size, np.int64), 0
    for step, (token, scores) in enumerate(zip(one.tokens, one.logits, strict=True)):
        expected = draw(scores, counts, sampling, len(one.prompt) + step)
        if expected.margin > 1e-5:
            assert token == expected.token
            compared += 1
        counts[token] += 1
    assert compared > 20


def test_a_forced_token_is_fed_and_counted_instead(device: JaxDevice) -> None:
    sampling = Sampling(temperature=0, presence_penalty=1000)
    chosen, forced = lane(device, 0, sampling=sampling), lane(device, 0, slot=1, first_page=8, sampling=sampling)
    for one in (chosen, forced):
        one.prefill(CHUNK_TOKENS)
    own = chosen.tokens[0]
    result = device.decode((chosen.row(), forced.row(token=own))).read()
    assert result.tokens[0] == result.tokens[1]  # forcing what was chosen changes nothing
    again = lane(device, 0, slot=1, first_page=8, sampling=sampling)
    again.prefill(CHUNK_TOKENS)
    other = (own + 1) % 300
    pending = device.decode((again.row(token=other),))
    scores = pending.read_logits()[0].copy()
    assert own not in (other, int(np.argmax(scores)))
    scores[other] -= 1000  # `own` was chosen but never fed: it is not counted
    assert pending.read().tokens[0] == int(scores.argmax())


def test_a_prefill_at_0_clears_the_slot(device: JaxDevice) -> None:
    sampling = Sampling(temperature=0, presence_penalty=2.0)
    first = lane(device, 1, sampling=sampling)
    first.prefill(CHUNK_TOKENS)
    decode([first], 5)
    again = lane(device, 1, sampling=sampling)
    again.prefill(CHUNK_TOKENS)
    decode([again], 5)
    np.testing.assert_array_equal(bits(first.logits), bits(again.logits))
    assert first.tokens == again.tokens


def test_nothing_compiles_after_prepare(device: JaxDevice) -> None:
    """JAX's own monitoring, while every program runs."""
    seen: list[str] = []

    def listen(name: str, duration_s: float, **facts: object) -> None:
        if "compile" in name or "trac" in name:
            seen.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        before = device.compilations
        lanes = [lane(device, index % 2, slot=index, first_page=5 * index) for index in range(LANES)]
        for one in lanes:
            one.prefill(64)
        for count in range(1, LANES + 1):
            decode(lanes[:count], 2)
        assert device.compilations == before
        assert seen == []
        jax.jit(lambda x: x + len(seen))(np.float32(1))
        assert seen  # the listener does hear a compilation
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_faulty_logits_are_flagged_and_leave_nothing_behind() -> None:
    """A token with a broken embedding spoils its own row, not its neighbour and not the pages and slot it leaves."""
    config, weights = shallow()
    broken = replace(weights, embed=weights.embed.at[299].set(np.nan))
    device = JaxDevice(
        PerLayer(config, broken),
        lanes=2,
        total_pages=4,
        prefill_chunk_tokens=64,
        max_context_tokens=128,
        used_tokens=300,
    )
    device.prepare()
    alone = Lane(device, 0, (0, 1), PROMPTS[0])
    alone.prefill(64)
    decode([alone], 3)
    good = Lane(device, 0, (0, 1), PROMPTS[0])
    good.prefill(64)
    bad = Lane(device, 1, (2, 3), PROMPTS[0])
    bad.prefill(64)
    result = device.decode((good.row(), bad.row(token=299))).read()
    assert result.faulty_rows == {1}
    assert result.tokens[0] == alone.tokens[1]
    spoiled = PrefillUnit(slot=1, pages=(3, 2), start=0, tokens=(299,) * 64, sample=bad.row().sample)
    assert device.prefill(spoiled).read().faulty_rows == {0}
    after = Lane(device, 1, (3, 2), PROMPTS[0])
    after.prefill(64)
    decode([after], 3)
    np.testing.assert_array_equal(bits(after.logits), bits(alone.logits))
    assert after.tokens == alone.tokens
    assert bool(np.isneginf(after.logits[0][300:]).all())


def test_units_need_a_prepared_device() -> None:
    given = golden()
    device = JaxDevice(
        PerLayer(given.config, given.weights), lanes=1, total_pages=2, prefill_chunk_tokens=64, max_context_tokens=128
    )
    assert device.compilations == 0
    with pytest.raises(RuntimeError, match="not prepared"):
        device.prefill(PrefillUnit(slot=0, pages=(0,), start=0, tokens=(1,)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"prefill_chunk_tokens": 96}, "prefill_chunk_tokens=96 is no positive multiple of 64"),
        ({"lanes": 0}, "lanes=0 is below 1"),
        ({"total_pages": 0}, "total_pages=0"),
        ({"max_context_tokens": 0}, "max_context_tokens=0"),
    ],
)
def test_sizes_are_checked(changes: dict[str, int], says: str) -> None:
    sizes = {"lanes": 1, "total_pages": 2, "prefill_chunk_tokens": 64, "max_context_tokens": 128} | changes
    with pytest.raises(ValueError, match=says):
        JaxDevice(PerLayer(golden().config, golden().weights), **sizes)


def test_only_what_is_asked_for_gets_programs() -> None:
    form = PerLayer(*shallow())
    device = JaxDevice(
        form,
        lanes=3,
        total_pages=4,
        prefill_chunk_tokens=192,
        max_context_tokens=192,
        decode_batches=(3,),
        prefill_sizes=(64, 192),
    )
    device.prepare()
    assert [facts.name for facts in device.programs] == ["prefill 64", "prefill 192", "decode 3"]
    with pytest.raises(ValueError, match="lanes=3"):
        JaxDevice(form, lanes=3, total_pages=2, prefill_chunk_tokens=64, max_context_tokens=64, decode_batches=(4,))
    for sizes in ((128,), (64, 64), ()):
        with pytest.raises(ValueError, match="do not ascend to 64"):
            JaxDevice(form, lanes=1, total_pages=2, prefill_chunk_tokens=64, max_context_tokens=64, prefill_sizes=sizes)


def test_a_refused_unit_costs_nothing(device: JaxDevice) -> None:
    with pytest.raises(ValueError, match="cannot start at 32"):
        device.prefill(PrefillUnit(slot=0, pages=(0,), start=32, tokens=(1,)))
    with pytest.raises(ValueError, match="room for"):
        device.prefill(PrefillUnit(slot=0, pages=tuple(range(6)), start=0, tokens=(1,) * 200))
    one = lane(device, 0)
    one.prefill(64)
    assert one.tokens == [GOLDEN_GREEDY[0][0]]


def test_progress_and_the_compile_cache(tmp_path: Path) -> None:
    """Threads store their programs in a private folder and find them there; progress ends where it said it would."""
    form = PerLayer(*shallow())
    calls: list[tuple[str, int, int]] = []
    seen: list[str] = []
    folder = tmp_path / "programs"

    def prepare() -> tuple[list[str], list[str]]:
        """The programs of a device, and which of JAX's events about its cache came."""
        calls.clear()
        seen.clear()
        jax.clear_caches()
        device = JaxDevice(
            form,
            lanes=1,
            total_pages=3,
            prefill_chunk_tokens=64,
            max_context_tokens=192,
            compile_cache=folder,
            progress=lambda name, done, total: calls.append((name, done, total)),
            compile_threads=2,
        )
        device.prepare()
        return [facts.name for facts in device.programs], list(seen)

    def listen(name: str, **facts: object) -> None:
        if name.startswith("/jax/compilation_cache/cache_"):
            seen.append(name.rpartition("_")[2])

    jax.monitoring.register_event_listener(listen)
    try:
        for expected in ("misses", "hits"):
            names, events = prepare()
            assert names == ["prefill 64", "decode 1"]
            assert events == [expected] * 3  # with the memory
            assert calls == [("prefill 64", 0, 3), ("decode 1", 1, 3), ("memory", 2, 3), ("ready", 3, 3)]
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.monitoring.unregister_event_listener(listen)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len([file for file in folder.iterdir() if "decode_step" in file.name or "prefill_step" in file.name]) >= 2


@pytest.mark.slow
@pytest.mark.contract("OPT-051")
def test_decode_call_by_call_gives_the_same_bits(device: JaxDevice) -> None:
    """Without programs made ahead of time; what JAX compiles for itself, it compiles before the device is ready."""
    plain = JaxDevice(
        PerLayer(golden().config, golden().weights),
        lanes=2,
        total_pages=POOL_PAGES,
        prefill_chunk_tokens=CHUNK_TOKENS,
        max_context_tokens=CONTEXT_TOKENS,
        decode_ahead_of_time=False,
    )
    plain.prepare()
    before = plain.compilations, plain.buffers()
    pairs = []
    for made in (device, plain):
        pair = [lane(made, 0), lane(made, 1, slot=1, first_page=5)]
        for one in pair:
            one.prefill(CHUNK_TOKENS)
        decode(pair, 4)
        decode(pair[:1], 4)
        pairs.append(pair)
    for ours, theirs in zip(*pairs, strict=True):
        np.testing.assert_array_equal(bits(ours.logits), bits(theirs.logits))
    assert (plain.compilations, plain.buffers()) == before
