"""Memory, ceilings and context costs by the options: what is asked for, what is refused, and when."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from ninfer.cli.assembly import House, context_ceiling, engine_limits, open_house, pool_request
from ninfer.cli.failure import Failure
from ninfer.cli.model_engine import context_costs, load_model, log_memory
from ninfer.cli.options import CapacityOptions, ModelOptions, ServeOptions
from ninfer.engine.cost_presets import prefill_signature
from ninfer.engine.memory import MIB, MemoryNeeds, MemoryPlan, PoolRequest
from tests.engine.model.golden import golden


def house_of(artifact: Path, tmp_path: Path, model: dict[str, Any] | None = None, **capacity: Any) -> House:
    options = ServeOptions(
        model=ModelOptions(cache_dir=tmp_path, **(model or {})), capacity=CapacityOptions(**capacity)
    )
    return open_house(artifact, options, lambda progress: None)


@pytest.mark.contract("OPT-008", "OPT-009", "KV-001", "KV-003")
@pytest.mark.parametrize(
    ("asked", "pool"),
    [
        # omitted: automatic, up to all lanes at their ceiling; a request of its own must fit
        ({}, (2, 2, 1024)),
        ({"max_concurrency": 3}, (2, 6, 1024)),
        ({"max_concurrency": 3, "kv_capacity": "auto", "vram_headroom_mib": 7}, (2, 6, 7)),
        ({"max_concurrency": 3, "vram_headroom_mib": 0}, (2, 6, 0)),
        # a number: exactly that
        ({"max_concurrency": 3, "kv_capacity": 1000}, (15, 15, 0)),
        # omitted with --no-prefix-reuse: --max-context
        ({"max_concurrency": 3, "no_prefix_reuse": True}, (2, 2, 0)),
        ({"max_concurrency": 3, "no_prefix_reuse": True, "kv_capacity": "auto"}, (2, 6, 1024)),
    ],
)
def test_the_pool_that_is_asked_for(asked: dict[str, Any], pool: tuple[int, int, int]) -> None:
    least, most, headroom_mib = pool
    wanted = pool_request(CapacityOptions(**asked), 100)
    assert wanted == PoolRequest(least_pages=least, most_pages=most, headroom_bytes=headroom_mib * MIB)
    assert engine_limits(CapacityOptions(), 100, wanted).kv_capacity_tokens == most * 64


@pytest.mark.contract("OPT-009")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kv_capacity": 63}, "--kv-capacity 63: at least 64"),
        ({"kv_capacity": 0}, "--kv-capacity 0: at least 64"),
        ({"kv_capacity": 0, "no_prefix_reuse": True}, "--kv-capacity 0: at least 64"),
        ({"kv_capacity": (1 << 28) + 1}, "--kv-capacity 268435457: at most 268435456"),
        ({"kv_capacity": -5}, "--kv-capacity -5: at least 64"),
        ({"kv_capacity": 640, "vram_headroom_mib": 1024}, "--vram-headroom-mib 1024: only for an automatic"),
        ({"no_prefix_reuse": True, "vram_headroom_mib": 0}, "--vram-headroom-mib 0: only for an automatic"),
    ],
)
def test_a_pool_that_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(Failure, match=said):
        pool_request(CapacityOptions(**asked), 100)


@pytest.mark.contract("OPT-006", "OPT-007", "YARN-003", "YARN-005")
@pytest.mark.parametrize(
    ("native", "factor", "asked", "ceiling"),
    [
        (262_144, 1.0, None, 8192),
        (262_144, 4.0, None, 8192),  # the factor raises what may be asked for, not the default
        (262_144, 4.0, 1_048_576, 1_048_576),
        (262_144, 4.0, 1_048_577, "with --rope-yarn-factor 4 1048576"),
        (4096, 1.0, None, 4096),
        (4096, 1.5, None, 6144),
        (4096, 4.0, None, 8192),
        (4096, 1.0, 4097, "--max-context 4097: the model's native context is 4096$"),
        (4096, 1.5, 6145, "native context is 4096, with --rope-yarn-factor 1.5 6144"),
    ],
)
def test_the_context_ceiling(native: int, factor: float, asked: int | None, ceiling: int | str) -> None:
    config = attrs.evolve(golden().config, max_position_embeddings=native, rope_yarn_factor=factor)
    if isinstance(ceiling, int):
        assert context_ceiling(asked, config) == ceiling
    else:
        with pytest.raises(Failure, match=ceiling):
            context_ceiling(asked, config)


@pytest.mark.contract("YARN-001", "YARN-004", "MODELS-005")
def test_yarn_is_the_process_s_and_leaves_the_artifact_alone(golden_chat_artifact: Path, tmp_path: Path) -> None:
    house = house_of(golden_chat_artifact, tmp_path, {"rope_yarn_factor": 2.0}, max_context=8192, max_concurrency=2)
    assert house.config == attrs.evolve(golden().config, rope_yarn_factor=2.0)
    assert "rope_yarn_factor" not in house.artifact.config("text")
    assert (house.card.max_context_tokens, house.card.native_context_tokens) == (8192, 4096)
    assert (house.limits.max_context_tokens, house.pool.most_pages) == (8192, 256)


@pytest.mark.contract("YARN-006")
def test_nobody_promises_good_answers_beyond_the_native_context() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8").split())
    assert "How good answers are beyond the native context is up to the model" in text


class Unread:
    """An artifact whose weights nobody may read."""

    def read(self, name: str) -> None:
        raise AssertionError(f"{name} is read before the memory is known to suffice")


@pytest.mark.parametrize(
    ("capacity", "remedy"),
    [({}, "--max-context, --max-concurrency or --vram-headroom-mib"), ({"kv_capacity": 6400}, "--kv-capacity or")],
)
def test_too_little_memory_is_told_before_anything_is_loaded(
    capacity: dict[str, Any], remedy: str, golden_chat_artifact: Path, tmp_path: Path
) -> None:
    house = attrs.evolve(house_of(golden_chat_artifact, tmp_path, **capacity), artifact=Unread())
    with pytest.raises(
        Failure, match=r"too little memory: .* needed \(weights 1\.\d MiB.*\), 2\.0 MiB free; less"
    ) as e:
        load_model(house, lambda: 2 * MIB)
    assert remedy in str(e.value)
    assert "\n" not in str(e.value)


def test_too_little_memory_ends_the_start_with_status_2(golden_chat_artifact: Path, tmp_path: Path) -> None:
    """The process as a whole: one line, whatever the machine is, for nobody has so much."""
    command = [sys.executable, "-m", "ninfer", "serve", str(golden_chat_artifact), "--cache-dir", str(tmp_path)]
    options = ["--port", "0", "--log-level", "off", "--kv-capacity", str(1 << 28)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("ninfer: too little memory: ")
    assert line.endswith(" free; less is needed with a smaller --kv-capacity or --max-concurrency")


@pytest.mark.parametrize(("used_mib", "warned"), [(0, False), (64, False), (65, True)])
def test_the_startup_table_is_logged(used_mib: int, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    needs = MemoryNeeds(
        weights_bytes=1, slots_bytes=2, counts_bytes=3, workspace_bytes=4, graphs_bytes=64 * MIB, page_bytes=5
    )
    plan = MemoryPlan(needs=needs, pages=6, headroom_bytes=7, have_bytes=1 << 30, graphs_used_bytes=used_mib * MIB)
    with caplog.at_level(logging.INFO):
        log_memory(plan)
    for part in ("weights", "recurrent slots", "KV pool", "sampling counts", "graph allowance", "headroom"):
        assert part in caplog.text
    assert f"({used_mib}.0 MiB used)" in caplog.text or not used_mib
    assert ("took 65 MiB of device memory, 64 MiB were set aside" in caplog.text) == warned


@pytest.mark.contract("CTX-005", "OPT-024")
@pytest.mark.parametrize(
    ("content", "said"), [("{", "malformed JSON"), ("{}", "schema: is missing"), (None, "No such")]
)
def test_a_presets_file_that_is_malformed_ends_the_start(
    content: str | None, said: str, golden_chat_artifact: Path, tmp_path: Path
) -> None:
    file = tmp_path / "costs.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Failure, match=rf"costs\.json: .*{said}"):
        house_of(golden_chat_artifact, tmp_path, context_cost_presets=file)


@pytest.mark.contract("CTX-003")
def test_costs_follow_the_model_and_the_device(golden_chat_artifact: Path, tmp_path: Path) -> None:
    house = house_of(golden_chat_artifact, tmp_path)
    plain = context_costs(house)
    stored = {name: tensor.format.name for name, tensor in house.artifact.tensors.items()}
    assert plain.prefill_signature == prefill_signature(house.config, formats=stored)
    stretched = context_costs(house_of(golden_chat_artifact, tmp_path, {"rope_yarn_factor": 2.0}))
    assert plain.prefill_signature != stretched.prefill_signature
    assert plain.prefill_source == "generic"
    assert plain.record().startswith("context cost: transfer ")
