"""Options of `serve`: defaults, ranges, refusals; what a house is made of by them. No engine runs here."""

import contextlib
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from kernels_pallas.chunk_attention import DEFAULT_SPLIT_WORKSPACE_BYTES
from ninfer.cli import main
from ninfer.cli.assembly import engine_limits, open_house
from ninfer.cli.failure import Failure
from ninfer.cli.options import (
    CapacityOptions,
    KernelOptions,
    ModelOptions,
    NetworkOptions,
    SamplerOptions,
    ServeOptions,
    StoreOptions,
)
from ninfer.cli.running import server_settings
from ninfer.cli.serve import record_kernels
from ninfer.cli.unbuilt import UnbuiltOptions
from ninfer.conversation import GenerationRequest, SamplingFields, Text, ThinkingFields, Turn
from ninfer.engine.artifact import Artifact
from ninfer.engine.memory import PoolRequest
from ninfer.engine.types import Engine
from ninfer.service import ProtocolFlags


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which `serve` ends under these arguments."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *arguments])
    captured = capsys.readouterr()
    assert caught.value.code == 2
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


BAD_VALUES = [
    ("--port", "70000"),
    ("--port", "-1"),
    ("--port", "http"),
    ("--max-request-mib", "0"),
    ("--max-concurrency", "0"),
    ("--max-concurrency", "9"),
    ("--max-pending-requests", "-1"),
    ("--pending-timeout-ms", "0"),
    ("--max-context", "0"),
    ("--prefill-chunk", "0"),
    ("--default-max-tokens", "0"),
    ("--default-thinking-budget", "0"),
    ("--default-thinking-budget", "-1"),
    ("--kv-capacity", "much"),
    ("--temperature", "2.5"),
    ("--temperature", "nan"),
    ("--top-p", "1.5"),
    ("--top-k", "21"),
    ("--top-k", "-1"),
    ("--min-p", "-0.1"),
    ("--presence-penalty", "3"),
    ("--frequency-penalty", "-3"),
    ("--seed", "9223372036854775808"),
    ("--seed", "1.5"),
    ("--port", "80.5"),
    ("--kv-capacity", "12.5"),
    ("--draft-tokens", "2.5"),
    ("--engine", "other"),
    ("--reasoning-effort", "huge"),
    ("--host", ""),
    ("--host", " "),
    ("--allowed-hosts", "a b"),
    ("--allowed-hosts", "https://a.example"),
    ("--allowed-hosts", "[::1"),
    ("--api-key", ""),
    ("--api-key", " k"),
    ("--api-key", "a\nb"),
    ("--prefill-split-workspace-mib", "16385"),
    ("--prefill-split-workspace-mib", "-1"),
    ("--log-level", "loud"),
    # of parts that are not built, checked all the same
    ("--rope-yarn-factor", "0.5"),
    ("--rope-yarn-factor", "inf"),
    ("--draft-tokens", "16"),
    ("--draft-tree-paths", "1"),
    ("--ngram-min-match", "3"),
    ("--request-log-keep", "1001"),
    ("--vision-max-merged", "63"),
    ("--kv-dtype", "fp4"),
    ("--spec", "eagle"),
    ("--vision-offload", "maybe"),
]


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize(("option", "value"), BAD_VALUES, ids=[" ".join(row) for row in BAD_VALUES])
def test_a_value_out_of_range_is_one_line(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert option in refused(capsys, f"{option}={value}")


@pytest.mark.contract("OPT-077")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-such-option"], "Unknown option: --no-such-option"),
        (["--greedy=maybe"], "--greedy"),
        (["--no-greedy"], "--no-greedy"),
        (["--port"], "--port requires an argument"),
        (["a.ninfer", "b.ninfer"], "b.ninfer"),
        (["no-such-file.ninfer"], "no-such-file.ninfer: cannot open"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *arguments)


WANTED = [
    ["--spec", "mtp"],
    ["--kv-dtype", "nvfp4"],
    ["--draft-tokens", "3"],
    ["--lm-head-draft"],
    ["--vision"],
    ["--host-context-mib", "64"],
    ["--prefix-cache-file", "cache.bin"],
    ["--request-log-jsonl", "log.jsonl"],
    ["--ngram-draft-tokens", "8"],
    ["--device", "1"],
    ["--log-stats-interval-ms", "100"],
]


@pytest.mark.contract("D40")
@pytest.mark.parametrize("arguments", WANTED, ids=" ".join)
def test_what_is_not_built_ends_the_start(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, *arguments)
    assert line.startswith(f"ninfer: {arguments[0]}")
    assert line.endswith(": not in this build")


@pytest.mark.contract("D40")
@pytest.mark.parametrize(
    ("name", "neutral", "asking"),
    [
        ("log_stats_interval_ms", 0, 1000),
        ("media_cache_mib", 0, 1),
        ("host_context_mib", 0.0, 1.0),
    ],
)
def test_values_that_ask_for_nothing_pass(name: str, neutral: float, asking: float) -> None:
    for passes in (UnbuiltOptions(), UnbuiltOptions(**{name: neutral}), UnbuiltOptions(log_stats_panel="off")):  # type: ignore[arg-type]
        passes.refuse()
    with pytest.raises(Failure, match="not in this build"):
        UnbuiltOptions(**{name: asking}).refuse()  # type: ignore[arg-type]


@pytest.mark.contract("OPT-001", "OPT-002", "OPT-010", "OPT-011")
def test_defaults() -> None:
    options = ServeOptions()
    assert (options.network.host, options.network.port) == ("127.0.0.1", 8080)
    capacity = options.capacity
    assert (capacity.max_concurrency, capacity.max_pending_requests) == (1, 16)


@pytest.mark.contract("OPT-012", "OPT-013", "OPT-025", "OPT-045")
def test_more_defaults() -> None:
    capacity = ServeOptions().capacity
    assert (capacity.pending_timeout_ms, capacity.prefill_chunk) == (30_000, 1024)
    assert (capacity.default_max_tokens, capacity.kv_capacity) == (8192, None)
    assert ServeOptions().network.max_request_mib == 384
    assert ServeOptions().sampler.fields() == SamplingFields()


@pytest.mark.contract("D38")
@pytest.mark.parametrize(
    ("asked", "effective"), [(1, 64), (63, 64), (64, 64), (65, 64), (127, 64), (1000, 960), (1024, 1024)]
)
def test_the_effective_prefill_chunk(asked: int, effective: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        pool = PoolRequest(least_pages=1, most_pages=8)
        assert engine_limits(CapacityOptions(prefill_chunk=asked), 512, pool).prefill_chunk_tokens == effective
    assert f"effective prefill chunk: {effective} tokens" in caplog.text


@pytest.mark.contract("D43")
@pytest.mark.parametrize(
    ("host", "allowed", "names"),
    [
        ("127.0.0.1", (), {"localhost", "127.0.0.1", "::1"}),
        ("localhost", ("Box.Local:9",), {"localhost", "127.0.0.1", "::1", "box.local"}),
        ("127.0.0.5", (), {"localhost", "127.0.0.1", "::1", "127.0.0.5"}),
        ("::1", ("[FE80::1]", "::2"), {"localhost", "127.0.0.1", "::1", "fe80::1", "::2"}),
        ("0.0.0.0", (), None),
        ("192.168.1.5", ("x",), None),
    ],
)
def test_allowed_hosts(host: str, allowed: tuple[str, ...], names: set[str] | None) -> None:
    network = NetworkOptions(host=host, allowed_hosts=allowed)
    address = "127.0.0.1" if host == "localhost" else host
    assert server_settings(network, calls=1, address=address, api_key=None).allowed_hosts == names


@pytest.mark.contract("OPT-003", "OPT-065", "D43", "AUTH-001", "AUTH-006")
def test_access() -> None:
    assert (ServeOptions().network.api_key, ServeOptions().network.cors) == (None, False)
    settings = server_settings(NetworkOptions(cors=True), calls=1, address="127.0.0.1", api_key="secret")
    # A key keeps foreign pages out already, so every host may be named.
    assert (settings.api_key, settings.cors, settings.allowed_hosts) == ("secret", True, None)
    assert "secret" not in repr(ServeOptions(network=NetworkOptions(api_key="secret")))


@pytest.mark.contract("EXEC-014")
def test_the_room_for_bodies() -> None:
    settings = server_settings(NetworkOptions(max_request_mib=3), calls=34, address="::1", api_key=None)
    assert (settings.max_request_bytes, settings.body_room_bytes) == (3 << 20, 34 * (3 << 20))


@pytest.mark.contract("D16", "OPT-014", "OPT-015", "OPT-016")
def test_choices_between_kernels_are_accepted_and_said_to_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ninfer")
    record_kernels(KernelOptions(prefill_split_workspace_mib=0))
    assert not caplog.records
    for options, named in (
        (KernelOptions(use_original_int8_prefill_kernel=True), "--use-original-int8-prefill-kernel"),
        (KernelOptions(prefill_8bit_pv=True), "--prefill-8bit-pv"),
        (KernelOptions(no_prefill_8bit_pv=True), "--no-prefill-8bit-pv"),
    ):
        caplog.clear()
        record_kernels(options)
        (record,) = caplog.records
        assert record.getMessage().startswith(f"{named} changes nothing")
        assert options.conflict("int8") is None
    assert KernelOptions(use_original_int8_prefill_kernel=True).conflict("bf16") == (
        "--use-original-int8-prefill-kernel: only with --kv-dtype int8"
    )
    contradiction = KernelOptions(prefill_8bit_pv=True, no_prefill_8bit_pv=True).conflict("bf16")
    assert contradiction == "--prefill-8bit-pv and --no-prefill-8bit-pv contradict each other"


@pytest.mark.contract("OPT-018")
def test_the_bound_of_split_keys_reaches_the_house(golden_chat_artifact: Path, tmp_path: Path) -> None:
    def bound(**kernels: int) -> int:
        options = ServeOptions(model=ModelOptions(cache_dir=tmp_path), kernels=KernelOptions(**kernels))
        return open_house(golden_chat_artifact, options, lambda progress: None).split_workspace_bytes

    assert bound() == DEFAULT_SPLIT_WORKSPACE_BYTES == 256 << 20
    assert bound(prefill_split_workspace_mib=0) == 0
    assert bound(prefill_split_workspace_mib=16384) == 16 << 30


def house_of(artifact: Path, tmp_path: Path, **model: Any) -> Any:
    options = ServeOptions(model=ModelOptions(cache_dir=tmp_path, **model), capacity=CapacityOptions(max_context=300))
    return open_house(artifact, options, lambda progress: None)


@pytest.mark.contract("MODELS-003", "MODELS-006", "MODELS-007", "MODELS-008", "MODELS-009")
def test_the_model_card_is_the_artifacts(golden_chat_artifact: Path, tmp_path: Path) -> None:
    card = house_of(golden_chat_artifact, tmp_path).card
    with Artifact.open(golden_chat_artifact) as artifact:
        shapes = [record.shape for record in artifact.tensors.values()]
        assert {record.component for record in artifact.tensors.values()} == {"text", "mtp"}
        elements = sum(int(np_product(shape)) for shape in shapes)
        config = artifact.config("text")
        assert card.parameters == elements
        assert card.weight_bytes == 4 * elements
        assert card.embedding_width == config["hidden_size"]
    assert card.dominant_format == "fp32"
    assert card.vocabulary_tokens == 320


def np_product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


@pytest.mark.contract("MODELS-004", "MODELS-005", "MODELS-002")
def test_the_context_follows_the_option(golden_chat_artifact: Path, tmp_path: Path) -> None:
    card = house_of(golden_chat_artifact, tmp_path).card
    assert (card.max_context_tokens, card.native_context_tokens) == (300, 4096)


@pytest.mark.contract("MODELS-001", "CHAT-002", "OPT-004")
def test_the_public_id(golden_chat_artifact: Path, golden_folder: Path, tmp_path: Path) -> None:
    named = house_of(golden_chat_artifact, tmp_path)
    aliased = house_of(golden_chat_artifact, tmp_path, model_id="lab/alias")
    assert (named.card.id, aliased.card.id) == ("golden-chat", "lab/alias")
    assert attrs.evolve(aliased.card, id="golden-chat") == named.card
    assert aliased.limits == named.limits


@pytest.mark.contract("OPT-005", "TMPL-009", "TMPL-010")
def test_another_template(golden_chat_artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ messages[0].content }}!")
    house = house_of(golden_chat_artifact, tmp_path, chat_template=file)
    request = GenerationRequest(turns=(Turn(role="user", parts=(Text("Hi"),)),))
    assert house.tokenizer.decode(house.builder.build(request).tokens) == "Hi!"
    for broken in ("{% if %}", "{{ raise_exception('never') }}", "{% if false %}x{% endif %}", "no text of the user's"):
        file.write_text(broken)
        with pytest.raises(Failure, match=r"chat template of .*t\.jinja"):
            house_of(golden_chat_artifact, tmp_path, chat_template=file)
    with pytest.raises(Failure, match=r"--chat-template .*none\.jinja: cannot read: No such file"):
        house_of(golden_chat_artifact, tmp_path, chat_template=tmp_path / "none.jinja")


@pytest.mark.contract("D7", "OPT-075")
@pytest.mark.parametrize("level", [None, "minimal", "low", "medium", "high", "xhigh", "max"])
def test_the_effort_of_requests_that_name_none(level: str | None, golden_chat_artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("effort: {{ reasoning_effort | default('own') }}{{ messages[0].content }}")
    house = house_of(golden_chat_artifact, tmp_path, chat_template=file, reasoning_effort=level)
    for effort, shown in ((None, level or "own"), ("high", "high")):
        request = GenerationRequest(turns=(Turn(role="user"),), thinking=ThinkingFields(effort=effort))
        assert house.tokenizer.decode(house.builder.build(request).tokens) == f"effort: {shown}"


@pytest.mark.contract("D6", "OPT-062", "OPT-063")
@pytest.mark.parametrize(
    ("flags", "said", "shown"),
    [
        ({}, ThinkingFields(), "unset unset"),
        ({"no_thinking": True}, ThinkingFields(), "False unset"),
        ({"no_thinking": True}, ThinkingFields(enabled=True), "True unset"),
        ({"preserve_thinking": True}, ThinkingFields(), "unset True"),
        ({"preserve_thinking": True}, ThinkingFields(preserve=False), "unset False"),
    ],
)
def test_thinking_flags_reach_the_template(
    flags: dict[str, bool], said: ThinkingFields, shown: str, golden_chat_artifact: Path, tmp_path: Path
) -> None:
    file = tmp_path / "t.jinja"
    file.write_text(
        "{{ messages[0].content }}{{ enable_thinking | default('unset') }} {{ preserve_thinking | default('unset') }}"
    )
    house = house_of(golden_chat_artifact, tmp_path, chat_template=file, **flags)
    request = GenerationRequest(turns=(Turn(role="user"),), thinking=said)
    assert house.tokenizer.decode(house.builder.build(request).tokens) == shown


def test_the_context_cannot_exceed_the_models(golden_chat_artifact: Path, tmp_path: Path) -> None:
    options = ServeOptions(model=ModelOptions(cache_dir=tmp_path), capacity=CapacityOptions(max_context=4097))
    with pytest.raises(Failure, match="--max-context 4097: the model's native context is 4096"):
        open_house(golden_chat_artifact, options, lambda progress: None)


@pytest.mark.contract("OPT-032", "OPT-033", "OPT-066")
def test_flags_of_protocols_reach_the_service(golden_chat_artifact: Path, tmp_path: Path) -> None:
    def flags(**groups: Any) -> ProtocolFlags:
        options = ServeOptions(model=ModelOptions(cache_dir=tmp_path), **groups)
        house = open_house(golden_chat_artifact, options, lambda progress: None)
        return house.service(cast(Engine, SimpleNamespace(limits=house.limits)), options).flags

    plain = flags()
    assert (plain.response_store_max_records, plain.response_store_max_mib, plain.usage_chunk_choice) == (
        1024,
        256,
        False,
    )
    asked = flags(
        store=StoreOptions(response_store_max_records=2, response_store_max_mib=1),
        network=NetworkOptions(usage_chunk_choice=True),
    )
    assert (asked.response_store_max_records, asked.response_store_max_mib, asked.usage_chunk_choice) == (2, 1, True)


@pytest.mark.contract("SAMP-005", "SAMP-007")
def test_sampler_flags_reach_the_rules() -> None:
    fields = SamplerOptions(temperature=0.5, top_k=0, seed=-4).fields()
    assert (fields.temperature, fields.top_k, fields.seed, fields.top_p) == (0.5, 0, -4, None)


def option_names() -> list[str]:
    groups = [field.default.factory for field in attrs.fields(ServeOptions)]
    fields = [field.name for group in (*groups, UnbuiltOptions) for field in attrs.fields(group)]
    return [f"--{name.replace('_', '-')}" for name in fields]


def test_every_option_is_one_field() -> None:
    names = option_names()
    assert sorted(set(names)) == sorted(names)


@pytest.mark.contract("OPT-076")
def test_help_names_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # or long names are broken
    with contextlib.suppress(SystemExit):
        main(["serve", "--help"])
    shown = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert set(option_names()) <= shown


def test_every_option_of_the_contract_is_there(shared: Path) -> None:
    contract = (shared / "spec/contract.md").read_text(encoding="utf-8")
    wanted = {match[1] for match in re.finditer(r"^- OPT-\d+ · (--[a-z0-9-]+)", contract, re.MULTILINE)}
    assert len(wanted) > 70
    assert wanted - {"--help"} <= set(option_names())
