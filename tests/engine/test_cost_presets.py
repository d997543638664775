"""Context costs: the formulas, which layer wins, and what a presets file may not hold."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.engine import cost_presets as costs
from ninfer.engine.artifact import ArtifactError
from tests.engine.model.golden import WIDE, golden

FORMATS = {"embed_tokens.weight": "fp32"}
SIGNATURE = costs.prefill_signature(WIDE, formats=FORMATS)
LINK = {"batch_ns": 1000, "operation_ns": 10, "ns_per_byte_q32": 1 << 31}
PREFILL = {
    "chunk_ns": 5,
    "token_ns_q32": 7 << 32,
    "attention_pair_ns_q32": 1 << 30,
    "vision_item_ns": 0,
    "vision_patch_ns_q32": 0,
}
FILE: dict[str, Any] = {
    "schema": 3,
    "artifact_type": "ninfer_context_cost_presets",
    "machines": [
        {
            "hardware_class": "cpu",
            "transfer": {"d2h": LINK, "h2d": LINK, "d2d": LINK},
            "prefill": [{"prefill_signature": SIGNATURE, "coefficients": PREFILL}],
        },
        {"hardware_class": "other-sm10", "prefill": [{"prefill_signature": "x", "coefficients": PREFILL}]},
    ],
}


def written(tmp_path: Path, content: object) -> Path:
    file = tmp_path / "presets.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_formulas() -> None:
    link, prefill = costs.LinkCosts(**LINK), costs.PrefillCosts(**PREFILL)
    assert link.seconds(operations=3, size_bytes=100) == pytest.approx(1050e-9)
    assert link.seconds(operations=30, size_bytes=100) == pytest.approx(1300e-9)
    # 2 chunks, 4 tokens after 10: 40 + 10 pairs of a quarter nanosecond
    assert prefill.seconds(chunks=2, base_tokens=10, new_tokens=4) == pytest.approx((10 + 28 + 12.5) * 1e-9)


@pytest.mark.contract("CTX-001", "CTX-002", "CTX-003", "CTX-004")
@pytest.mark.parametrize(
    ("hardware", "signature", "file", "transfer", "prefill"),
    [
        ("toaster", SIGNATURE, None, "generic", "generic"),
        ("cpu", SIGNATURE, None, "compiled", "generic"),
        ("nvidia-h200-sm90", SIGNATURE, None, "compiled", "generic"),
        ("cpu", SIGNATURE, {"transfer", "prefill"}, "file", "file"),
        ("cpu", SIGNATURE, {"transfer"}, "file", "generic"),
        ("cpu", SIGNATURE, {"prefill"}, "compiled", "file"),
        ("cpu", "another", {"transfer", "prefill"}, "file", "generic"),
        ("toaster", SIGNATURE, {"transfer", "prefill"}, "generic", "generic"),
    ],
)
def test_the_last_layer_that_has_it_wins(
    hardware: str, signature: str, file: set[str] | None, transfer: str, prefill: str, tmp_path: Path
) -> None:
    presets = None
    if file is not None:
        content = json.loads(json.dumps(FILE))
        for part in {"transfer", "prefill"} - file:
            del content["machines"][0][part]
        presets = costs.read_presets(written(tmp_path, content))
    found = costs.resolve_costs(hardware, signature, presets)
    assert (found.transfer_source, found.prefill_source) == (transfer, prefill)
    assert found.record() == f"context cost: transfer {transfer}, prefill {prefill} ({hardware}, {signature})"
    if transfer == "file":
        assert found.transfer.h2d == costs.LinkCosts(**LINK)
    if prefill == "file":
        assert found.prefill == costs.PrefillCosts(**PREFILL)
    if (transfer, prefill) == ("generic", "generic"):
        assert (found.transfer, found.prefill) == (costs.GENERIC_TRANSFER, costs.GENERIC_PREFILL)


@pytest.mark.contract("CTX-003")
def test_a_signature_follows_shape_formats_and_uses() -> None:
    others = [
        costs.prefill_signature(attrs.evolve(WIDE, intermediate_size=641), formats=FORMATS),
        costs.prefill_signature(attrs.evolve(WIDE, rope_yarn_factor=2.0), formats=FORMATS),
        costs.prefill_signature(WIDE, formats={"embed_tokens.weight": "bf16"}),
        costs.prefill_signature(WIDE, formats=FORMATS, uses=("text", "vision")),
        costs.prefill_signature(golden().config, formats=FORMATS),
    ]
    assert len({SIGNATURE, *others}) == 6
    assert costs.prefill_signature(WIDE, formats=dict(FORMATS)) == SIGNATURE
    assert SIGNATURE.startswith("text-")


@pytest.mark.contract("D20")
def test_compiled_values_are_those_that_were_measured_here() -> None:
    assert set(costs.COMPILED) == {"cpu", "nvidia-h200-sm90"}


@pytest.mark.parametrize(
    ("kind", "capability", "name"),
    [
        ("cpu", None, "cpu"),
        ("NVIDIA H200", "9.0", "nvidia-h200-sm90"),
        ("NVIDIA GeForce RTX 5090", "12.0", "nvidia-geforce-rtx-5090-sm120"),
    ],
)
def test_hardware_classes(kind: str, capability: str | None, name: str) -> None:
    assert costs.hardware_class(kind, capability) == name


def changed(*path: str | int, to: object) -> dict[str, Any]:
    """The file with one member replaced."""
    content: dict[str, Any] = json.loads(json.dumps(FILE))
    at: Any = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return content


BAD: list[tuple[object, str]] = [
    ("{", "malformed JSON"),
    (json.dumps(FILE).replace('"h2d": {', '"d2h": {', 1), "malformed JSON: member 'd2h' stands there twice"),
    (
        json.dumps(FILE).replace('"batch_ns": ', '"batch_ns": 1, "batch_ns": ', 1),
        "member 'batch_ns' stands there twice",
    ),
    ("[]", "must be a JSON object"),
    (changed("schema", to=2), "schema.* must be 3"),
    (changed("artifact_type", to="x"), "artifact_type.* must be 'ninfer"),
    (changed("more", to=1), "more.* is not known here"),
    (changed("machines", to=[]), "machines.* must not be empty"),
    (changed("machines", 1, "hardware_class", to="cpu"), r"machines\[1\].hardware_class.* twice"),
    (changed("machines", 1, "hardware_class", to=""), r"machines\[1\].hardware_class"),
    (changed("machines", 0, "speed", to=1), r"machines\[0\].speed.* is not known here"),
    (changed("machines", 1, "prefill", to=[]), r"machines\[1\].* neither transfer nor prefill"),
    (changed("machines", 0, "transfer", "h2d", "batch_ns", to=-1), r"transfer.h2d.batch_ns.* from 0"),
    (changed("machines", 0, "transfer", "h2d", "batch_ns", to=1.5), r"batch_ns.* must be an integer"),
    (changed("machines", 0, "transfer", "h2d", to={}), r"h2d.batch_ns.* is missing"),
    (changed("machines", 0, "transfer", "up", to=LINK), r"transfer.up.* is not known here"),
    (
        changed("machines", 0, "prefill", to=FILE["machines"][0]["prefill"] * 2),
        r"prefill\[1\].prefill_signature.* twice",
    ),
    (changed("machines", 0, "prefill", 0, "coefficients", "chunk_ns", to=True), r"chunk_ns.* must be an integer"),
    (changed("machines", 0, "prefill", 0, "why", to=""), r"prefill\[0\].why.* is not known here"),
]


@pytest.mark.contract("CTX-005")
@pytest.mark.parametrize(("content", "said"), BAD, ids=[said for _, said in BAD])
def test_a_malformed_file_is_one_line(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=said) as refused:
        costs.read_presets(written(tmp_path, content))
    assert "\n" not in str(refused.value)
    assert "presets.json" in str(refused.value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["schema", "machines", "transfer", "prefill", "hardware_class", "d2h"]), inner),
                    max_leaves=10))  # fmt: skip
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    for content in (value, {**FILE, "machines": [value]}):
        file.write_text(json.dumps(content))
        with pytest.raises(ArtifactError):
            costs.read_presets(file)
