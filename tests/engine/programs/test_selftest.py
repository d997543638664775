"""The self-test's checks on the golden model: they pass, and each one finds the fault that it is there for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest

from ninfer.engine.artifact import ArtifactError
from ninfer.engine.device import DecodeRow, PrefillUnit, UnitResult
from ninfer.engine.programs import JaxDevice, JaxPending
from ninfer.engine.selftest import Check, GoldenVectors, Outcome, Subject, golden_folder, read_golden, run_checks
from ninfer.engine.types import EngineLimits
from tests.engine.model.golden import FOLDER
from tests.engine.programs.conftest import CHUNK_TOKENS, CONTEXT_TOKENS, LANES, POOL_PAGES

LIMITS = EngineLimits(
    max_context_tokens=CONTEXT_TOKENS,
    lanes=LANES,
    kv_capacity_tokens=64 * POOL_PAGES,
    prefill_chunk_tokens=CHUNK_TOKENS,
)


@attrs.frozen
class SpoiledPending:
    """A unit whose logits are not what was computed."""

    inner: JaxPending
    spoil: Callable[[np.ndarray], np.ndarray]

    def read(self) -> UnitResult:
        return self.inner.read()

    def read_logits(self) -> np.ndarray:
        return self.spoil(self.inner.read_logits().copy())


@attrs.define
class SpoiledDevice:
    """A device with a fault of its own in decode rounds of more than `least_rows` rows, or in its memory."""

    inner: JaxDevice
    spoil: Callable[[np.ndarray], np.ndarray] = np.asarray
    least_rows: int = 0
    moves: bool = False
    copies: bool = False
    looks: int = 0

    @property
    def activation_bits(self) -> int:
        return self.inner.activation_bits

    @property
    def total_pages(self) -> int:
        return self.inner.total_pages

    @property
    def compilations(self) -> int:
        return self.inner.compilations

    @property
    def programs(self) -> tuple[object, ...]:
        return tuple(attrs.evolve(facts, aliased_bytes=0) if self.copies else facts for facts in self.inner.programs)

    def buffers(self) -> tuple[tuple[int, int], ...]:
        self.looks += 1
        return tuple((at + self.looks if self.moves else at, size) for at, size in self.inner.buffers())

    def prefill(self, unit: PrefillUnit) -> JaxPending:
        return self.inner.prefill(unit)

    def decode(self, rows: tuple[DecodeRow, ...]) -> object:
        pending = self.inner.decode(rows)
        return SpoiledPending(pending, self.spoil) if len(rows) > self.least_rows else pending


def last_bit(rows: np.ndarray) -> np.ndarray:
    rows[0, 0] = np.nextafter(rows[0, 0], np.float32(np.inf))
    return rows


def one_percent(rows: np.ndarray) -> np.ndarray:
    return rows * np.float32(1.01)


def nothing_finite(rows: np.ndarray) -> np.ndarray:
    return np.full_like(rows, np.nan)


def checked(device: object, golden: tuple[GoldenVectors, ...], compared_tokens: int = 8) -> dict[str, Check]:
    subject = Subject(
        device=device,  # type: ignore[arg-type]
        limits=LIMITS,
        used_tokens=290,
        golden=golden,
        compared_tokens=compared_tokens,
    )
    return {check.name: check for check in run_checks(subject)}


def test_the_golden_model_passes(device: JaxDevice) -> None:
    found = checked(device, read_golden(FOLDER), compared_tokens=24)
    assert {name: check.outcome for name, check in found.items()} == dict.fromkeys(found, Outcome.PASSED)
    assert list(found) == ["decode against prefill", "determinism", "golden vectors", "memory"]
    assert 0 < found["decode against prefill"].figures["kl_estimate"] < 1e-9
    assert found["decode against prefill"].figures["tokens"] == 48
    assert found["determinism"].figures["rows"] == (1 + 2 + 3 + 4) * 9
    assert found["golden vectors"].figures["tokens"] == 32


@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        ({"spoil": last_bit, "least_rows": 1}, {"determinism"}),
        ({"spoil": one_percent}, {"decode against prefill", "golden vectors"}),
        ({"spoil": nothing_finite}, {"decode against prefill", "golden vectors"}),
        ({"moves": True}, {"memory"}),
        ({"copies": True}, {"memory"}),
    ],
    ids=["a neighbour changes a bit", "decoding is off", "not a number", "memory moves", "memory is copied"],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_faults_are_found(device: JaxDevice, fault: dict[str, object], failing: set[str]) -> None:
    found = checked(SpoiledDevice(device, **fault), read_golden(FOLDER))  # type: ignore[arg-type]
    assert {name for name, check in found.items() if check.outcome is Outcome.FAILED} == failing


def test_without_golden_vectors_nothing_is_claimed(device: JaxDevice) -> None:
    assert checked(device, ())["golden vectors"].outcome is Outcome.SKIPPED


def test_a_golden_prompt_that_is_too_long_is_no_pass(device: JaxDevice) -> None:
    vectors = GoldenVectors(prompt=(1,) * 400, greedy=(2,), logits=np.zeros((1, 320), np.float32))
    assert checked(device, (vectors,))["golden vectors"].outcome is Outcome.FAILED


def test_where_golden_vectors_are() -> None:
    assert golden_folder(Path("a/name.ninfer")) == Path("a/name.golden")


def test_golden_vectors_that_do_not_fit_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "g"
    folder.mkdir()
    with pytest.raises((ArtifactError, OSError)):
        read_golden(folder)
    shutil.copyfile(FOLDER / "expected.safetensors", folder / "expected.safetensors")
    prompts = json.loads((FOLDER / "inputs.json").read_text())["prompts"]
    for content, said in (
        ([*prompts, prompts[0]], r"p2\.greedy_logits: is missing"),
        ([{**prompts[0], "greedy": [1]}], r"prompts\[0\]: 7 prompt tokens, 1 greedy ones"),
        ([{**prompts[0], "input_ids": [-1]}], r"input_ids\[0\]"),
    ):
        (folder / "inputs.json").write_text(json.dumps({"prompts": content}))
        with pytest.raises(ArtifactError, match=said):
            read_golden(folder)
