"""The self-test's work: open an artifact, build the device that serves, run the checks, report plain values.

Importing it imports JAX. The device is prepared and driven on one thread with a deep stack, as the engine does it.
"""

import time
from collections.abc import Callable
from pathlib import Path

import attrs
from rich.console import Console

from ninfer.cli.assembly import House, open_house
from ninfer.cli.checksums import compared
from ninfer.cli.converting import progress_bar, terminated_cleanly
from ninfer.cli.deep_stack import in_thread
from ninfer.cli.failure import Failure
from ninfer.cli.model_engine import load_model
from ninfer.cli.options import CapacityOptions, KernelOptions, ModelOptions, ServeOptions
from ninfer.cli.selftest import SelftestOptions
from ninfer.cli.telling import telling
from ninfer.engine.artifact import ArtifactError
from ninfer.engine.memory import TooLittleMemory
from ninfer.engine.programs.footprint import device_kind
from ninfer.engine.selftest import (
    Check,
    GoldenVectors,
    Outcome,
    Subject,
    golden_folder,
    read_golden,
    run_checks,
)


def run_selftest(path: Path, options: SelftestOptions, errors: Console) -> dict[str, object]:
    """Open the artifact and test what is in it; the report as plain JSON values.

    Raises:
        Failure: nothing to test, or it does not fit.
    """
    serving = ServeOptions(
        model=ModelOptions(cache_dir=options.cache_dir, rope_yarn_factor=options.rope_yarn_factor),
        capacity=CapacityOptions(
            max_context=options.max_context,
            max_concurrency=options.max_concurrency,
            prefill_chunk=options.prefill_chunk,
            kv_dtype=options.kv_dtype,
        ),
        kernels=KernelOptions(prefill_split_workspace_mib=options.prefill_split_workspace_mib),
    )
    with terminated_cleanly(), progress_bar(errors) as progress:
        house = open_house(path, serving, progress)
    with house.artifact, telling(errors) as tell:
        folder = options.golden or golden_folder(house.artifact.file)
        try:
            golden = read_golden(folder) if options.golden or folder.is_dir() else ()
        except ArtifactError as error:
            raise Failure(f"golden vectors: {error}") from error
        return in_thread(lambda: _run(house, golden, tell), name="ninfer-selftest")


def _run(house: House, golden: tuple[GoldenVectors, ...], tell: Callable[[str], None]) -> dict[str, object]:
    """Load, compile and test."""
    begin_s = time.monotonic()
    tell("loading weights and comparing them with their checksums")
    with compared(house.artifact) as comparison:
        loaded = load_model(
            house, progress=lambda name, done, total: tell(f"preparing the device: {name} ({done} of {total})")
        )
        try:
            loaded.device.prepare()
        except (TooLittleMemory, OSError) as error:  # OSError: the folder of compiled programs
            raise Failure(str(error)) from error
        comparison.wait()
    ready_s = time.monotonic() - begin_s
    subject = Subject(
        device=loaded.device,
        limits=loaded.limits,
        used_tokens=min(house.used_tokens, house.config.vocab_size),
        golden=golden,
        compared_tokens=min(32, loaded.limits.max_context_tokens // 4),
        tell=tell,
    )
    checks: list[Check] = list(run_checks(subject))
    plan = loaded.budget.plan
    return {
        "artifact": str(house.artifact.file),
        "model": house.card.id,
        "device": device_kind()[0],
        "passed": all(check.outcome is not Outcome.FAILED for check in checks),
        "checks": [{**attrs.asdict(check), "outcome": check.outcome.value} for check in checks],
        "memory": {
            "parts": [{"name": name, "bytes": size} for name, size in plan.parts()],
            "pages": plan.pages,
            "free_at_start_bytes": plan.have_bytes,
            "table": list(plan.table()),
        },
        "programs": [attrs.asdict(facts) for facts in loaded.device.programs],
        "ready_s": round(ready_s, 3),
    }
