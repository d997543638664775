"""One prepared device for all tests here: compiling it takes seconds."""

import pytest

from ninfer.engine.programs import JaxDevice, PerLayer
from tests.engine.model.golden import golden

LANES, POOL_PAGES, CHUNK_TOKENS, CONTEXT_TOKENS = 4, 24, 192, 384


@pytest.fixture(scope="session")
def device() -> JaxDevice:
    """The golden model with four lanes. Tests leave slots and pages dirty: a prefill at 0 clears what it uses."""
    given = golden()
    device = JaxDevice(
        PerLayer(given.config, given.weights),
        lanes=LANES,
        total_pages=POOL_PAGES,
        prefill_chunk_tokens=CHUNK_TOKENS,
        max_context_tokens=CONTEXT_TOKENS,
    )
    device.prepare()
    return device
