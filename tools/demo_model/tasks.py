"""The tasks of one turn that both looks at a model judge: a checkpoint's (`look`) and an artifact's (`evaluate`).

It knows which generator makes which task, and neither models nor judges.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.demo_model.generate import (
    calls,
    errands,
    extract,
    jsons,
    memory,
    persona,
    reading,
    reason,
    shapes,
    talk,
    wide,
)
from tools.demo_model.render import Example
from tools.demo_model.words import Words

ONE_TURN: dict[str, Callable[[Words], Example]] = {
    "call": calls.call,
    "call_wide": wide.call_wide,
    "refuse": calls.refuse,
    "refuse_wide": wide.refuse_wide,
    "unneeded": talk.unneeded_tools,
    "unneeded_wide": wide.unneeded_wide,
    "json": extract.as_json,
    "json_wide": shapes.json_wide,
    "json_list": extract.json_list,
    "copy": extract.copy,
    "copy_wide": reading.copy_wide,
    "lookup": extract.lookup,
    "read": reading.read,
    "edit": extract.edit,
    "summary": extract.summary,
    "arithmetic": reason.arithmetic,
    "compare": reason.compare,
    "sort": reason.sort,
    "date": reason.date,
    "remember": talk.remember,
    "errand": errands.call_errand,
    "errands": errands.several_errands,
    "refuse_errand": errands.refuse_errand,
    "unneeded_errand": errands.unneeded_errand,
    "recall": memory.recall,
    "said_before": memory.said_before,
    "persona": persona.persona,
    "jsons": jsons.jsons,
}
