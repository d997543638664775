"""Prompts: tokenizer, chat template, control-token safety. Requests in, token ids out; no engine, no replies."""

from ninfer.prompt.builder import PreparedPrompt, PromptBuilder
from ninfer.prompt.frontiers import CacheFrontiers
from ninfer.prompt.maintained import maintained_variant
from ninfer.prompt.template import BadTemplate, ChatTemplate
from ninfer.prompt.tokenizer import Tokenizer
from ninfer.prompt.tokenizer_files import BadTokenizer
from ninfer.prompt.traits import THINK_CLOSE, THINK_OPEN, check_renders

__all__ = [
    "THINK_CLOSE",
    "THINK_OPEN",
    "BadTemplate",
    "BadTokenizer",
    "CacheFrontiers",
    "ChatTemplate",
    "PreparedPrompt",
    "PromptBuilder",
    "Tokenizer",
    "check_renders",
    "maintained_variant",
]
