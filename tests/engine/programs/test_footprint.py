"""What is free, what is needed, and that memory is allocated once and changed in place."""

from dataclasses import replace
from pathlib import Path

import jax
import pytest

from ninfer.engine.memory import PoolRequest, TooLittleMemory, plan_memory
from ninfer.engine.programs import JaxDevice, PerLayer
from ninfer.engine.programs import footprint as of
from ninfer.engine.programs.stored_weights import store
from tests.engine.model.golden import WIDE, golden
from tests.engine.programs.conftest import CHUNK_TOKENS, LANES, POOL_PAGES
from tests.engine.programs.drive import Lane, decode, pages_for


def test_needs_are_what_is_allocated(device: JaxDevice) -> None:
    needs = of.memory_needs(golden().config, lanes=LANES)
    held = sum(size for _, size in device.buffers())
    assert held == needs.slots_bytes + needs.counts_bytes + POOL_PAGES * needs.page_bytes
    text = golden().weights  # its MTP head is not served
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(store(replace(text, mtp=None))))
    assert needs.weights_bytes == stored
    assert needs.graphs_bytes == 0  # on the CPU


def test_the_estimate_of_the_workspace_is_of_the_right_size(device: JaxDevice) -> None:
    estimate = of.estimated_workspace_bytes(golden().config, lanes=LANES)
    assert device.workspace_bytes / 2 <= estimate <= 6 * device.workspace_bytes


@pytest.mark.contract("KV-006")
def test_memory_is_allocated_once_and_changed_in_place(device: JaxDevice) -> None:
    """The arrays stay where they are through prefill and every batch size, and the programs alias all of them."""
    before = device.buffers()
    lanes = [
        Lane(device, slot, pages_for(130, range(4 * slot, POOL_PAGES)), tuple(range(100))) for slot in range(LANES)
    ]
    for one in lanes:
        one.prefill(CHUNK_TOKENS)
    for count in range(1, LANES + 1):
        decode(lanes[:count], 2)
    assert device.buffers() == before
    held = sum(size for _, size in before)
    assert [facts.name for facts in device.programs] == [
        f"prefill {CHUNK_TOKENS}",
        *(f"decode {n}" for n in range(1, LANES + 1)),
    ]
    assert {facts.aliased_bytes for facts in device.programs} == {held}
    # What a program allocates besides does not grow with the pool: not even one page is copied whole.
    assert all(facts.workspace_bytes < held for facts in device.programs)


@pytest.mark.slow
def test_the_pool_follows_the_last_word() -> None:
    """A hook that sees the real workspace may make the pool smaller; what it raises ends the preparation."""
    given, asked = golden(), []

    def fit(workspace_bytes: int) -> int:
        asked.append(workspace_bytes)
        return 2

    sizes = {"lanes": 1, "total_pages": 3, "prefill_chunk_tokens": 64, "max_context_tokens": 128}
    device = JaxDevice(PerLayer(given.config, given.weights), fit=fit, **sizes)
    device.prepare()
    assert asked == [device.workspace_bytes]
    assert device.total_pages == 2
    one = Lane(device, 0, (1, 0), given.prompts[0])
    one.prefill(64)
    decode([one], 3)
    assert tuple(one.tokens) == given.greedy[0][:4]


def test_what_is_free_is_plausible() -> None:
    free = of.free_device_bytes()
    assert free is None or 0 <= free < 1 << 50


@pytest.mark.parametrize(
    ("limit", "used", "left"),
    [("1000\n", "400\n", 600), ("max\n", "400\n", None), ("300", "400", 0), ("9223372036854771712", "5", None)],
)
def test_a_container_s_limit_counts(limit: str, used: str, left: int | None, tmp_path: Path) -> None:
    files = tmp_path / "limit", tmp_path / "used"
    for file, text in zip(files, (limit, used), strict=True):
        file.write_text(text)
    absent = tmp_path / "no"
    limits = (files, (absent, absent))
    assert of.host_available_bytes(meminfo=absent, limits=limits) == left
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8 kB\nMemAvailable: 0 kB\n")
    assert of.host_available_bytes(meminfo=meminfo, limits=limits) == 0


def test_a_model_that_cannot_fit_is_refused_by_its_shapes() -> None:
    """Nothing of it is loaded: the needs of a wide model come from its config alone."""
    needs = of.memory_needs(WIDE, lanes=8)
    with pytest.raises(TooLittleMemory, match="MiB needed"):
        plan_memory(needs, PoolRequest(least_pages=64, most_pages=64), 1 << 20)
