"""The options of `serve` whose part is not in this build (D40).

They are parsed and range-checked like all others; a value that asks for the part ends the start with status 2 and one
line, a value that asks for nothing passes. When a part is built, its field moves to `options`. It knows no part.
"""

from pathlib import Path
from typing import Annotated, Literal, get_args

import attrs
from cyclopts import Parameter
from cyclopts.validators import Number

from ninfer.cli.failure import Failure
from ninfer.cli.options import KvStorage, Switch, Whole
from ninfer.engine.types import KvDtype

OnOff = Literal["on", "off"]


def _range(low: float, high: float | None = None) -> Parameter:
    return Parameter(help="Not in this build.", validator=Number(gte=low, lte=high))


_LATER = Parameter(help="Not in this build.")


@attrs.frozen(kw_only=True)
class UnbuiltOptions:
    """Options to come. The default asks for nothing; other values that ask for nothing stand in `_NEUTRAL_VALUES`."""

    use_original_nvfp4_prefill_kernel: Annotated[Switch, _LATER] = False
    log_stats_interval_ms: Annotated[Whole, _range(0)] = 5000
    log_stats_panel: Annotated[OnOff, _LATER] = "on"
    log_colours: Annotated[OnOff, _LATER] = "off"
    device: Annotated[Whole, _range(0)] = 0
    media_cache_mib: Annotated[Whole, _range(0)] = 1024
    media_live_mib: Annotated[Whole, _range(1)] = 2048
    media_preprocess_threads: Annotated[Whole, _range(0)] = 0
    request_log_jsonl: Annotated[Path | None, _LATER] = None
    request_log_max_mib: Annotated[Whole | None, _range(1)] = None
    request_log_keep: Annotated[Whole, _range(0, 1000)] = 4
    spec: Annotated[Literal["mtp", "dflash", "dflash2"] | None, _LATER] = None
    draft_tokens: Annotated[Whole | None, _range(1, 15)] = None
    lm_head_draft: Annotated[Switch, _LATER] = False
    draft_tree_nodes: Annotated[str | None, _LATER] = None
    draft_tree_paths: Annotated[Whole, _range(2, 8)] = 8
    ngram_draft_tokens: Annotated[Whole, _range(0, 63)] = 0
    ngram_min_match: Annotated[Whole, _range(4, 64)] = 12
    ngram_archive_mib: Annotated[Whole, _range(0)] = 0
    ngram_session_mib: Annotated[Whole, _range(0)] = 128
    ngram_native_sessions: Annotated[Switch, _LATER] = False
    vision: Annotated[Switch, _LATER] = False
    vision_offload: Annotated[OnOff, _LATER] = "off"
    vision_max_merged: Annotated[Whole, _range(64, 32768)] = 32768
    host_context_mib: Annotated[float, _range(0)] = 8192.0
    use_original_prefix_caching: Annotated[Switch, _LATER] = False
    device_snapshot_slots: Annotated[Whole | None, _range(1, 64)] = None
    cache_taps_per_request: Annotated[Whole | None, _range(0, 64)] = None
    cache_tap_ladder: Annotated[Whole | None, _range(1)] = None
    cache_tap_min_gap: Annotated[Whole | None, _range(0)] = None
    prefix_cache_file: Annotated[Path | None, _LATER] = None
    device_state_slots: Annotated[Whole | None, _range(0)] = None

    def refuse(self, kv_dtype: KvStorage = "bf16") -> None:
        """End the start if a value asks for a part that is not here; `kv_dtype` is an option elsewhere.

        Raises:
            Failure: naming the option and the value.
        """
        if self.use_original_nvfp4_prefill_kernel and kv_dtype != "nvfp4":
            raise Failure("--use-original-nvfp4-prefill-kernel: only with --kv-dtype nvfp4")
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if value != field.default and value not in _NEUTRAL_VALUES.get(field.name, ()):
                flag = f"--{field.name.replace('_', '-')}"
                raise Failure(f"{flag if value is True else f'{flag} {value}'}: not in this build")
        if kv_dtype not in get_args(KvDtype):
            raise Failure(f"--kv-dtype {kv_dtype}: not in this build")


_NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    # option -> values beside the default that ask for nothing
    "log_stats_interval_ms": (0,),
    "log_stats_panel": ("off",),
    "media_cache_mib": (0,),
    "host_context_mib": (0.0,),
}
