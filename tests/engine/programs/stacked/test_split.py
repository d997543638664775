"""The prefill step of the 27B shape under a bound for split keys: which kernels are in it. Lowered, not compiled."""

from collections import Counter
from functools import partial

import attrs
import jax
import pytest

from kernels_pallas.target import count_kernels, lower_for_cuda
from ninfer.engine.device import PrefillUnit
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.stacked import Stacked
from ninfer.engine.programs.stacked.random import random_stacked

CONFIG = attrs.evolve(PUBLISHED["27b"], layer_types=PUBLISHED["27b"].layer_types[:4])
TABLE_PAGES = 1024

pytestmark = pytest.mark.filterwarnings("ignore:.*Triton backend.*:DeprecationWarning")


@pytest.mark.contract("KVFMT-007", "KVFMT-020", "KVFMT-022")
@pytest.mark.parametrize(("tokens", "bound_mib", "splits"), [(64, 256, 1), (64, 0, 0), (64, 8, 0), (1024, 256, 0)])
@pytest.mark.usefixtures("h200")  # not for the GPU: with its jax come the kernels of products
def test_the_bound_reaches_the_kernel(tokens: int, bound_mib: int, splits: int) -> None:
    weights = jax.eval_shape(lambda: random_stacked(CONFIG, lambda name: "q4_g64"))
    form = Stacked(CONFIG, weights, kv_format="int8", split_workspace_bytes=bound_mib << 20, impl="kernel")
    memory = jax.eval_shape(partial(form.zero_memory, pages=8, slots=1, table_pages=TABLE_PAGES))
    unit = PrefillUnit(slot=0, pages=(0,), start=0, tokens=(0,))
    plan = form.pack_prefill(unit, table_pages=TABLE_PAGES, tokens=tokens)
    step = jax.jit(partial(form.prefill_step, CONFIG.vocab_size, TABLE_PAGES))
    found = Counter(count_kernels(lower_for_cuda(step, weights, memory, plan)))
    assert found["attend_chunk"] == 1
    assert found["sum_segments"] == splits
