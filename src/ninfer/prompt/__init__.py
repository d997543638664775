"""Prompts: tokenizer, chat template, control-token safety. Requests in, token ids out; no engine, no replies."""

from ninfer.prompt.bounds import Abandoned, Cancellation
from ninfer.prompt.builder import PreparedPrompt, PromptBuilder
from ninfer.prompt.frontiers import CacheFrontiers
from ninfer.prompt.opening import open_template
from ninfer.prompt.template import BadTemplate, ChatTemplate, Template
from ninfer.prompt.tokenizer import Tokenizer
from ninfer.prompt.tokenizer_files import BadTokenizer
from ninfer.prompt.traits import THINK_CLOSE, THINK_OPEN

__all__ = [
    "THINK_CLOSE",
    "THINK_OPEN",
    "Abandoned",
    "BadTemplate",
    "BadTokenizer",
    "CacheFrontiers",
    "Cancellation",
    "ChatTemplate",
    "PreparedPrompt",
    "PromptBuilder",
    "Template",
    "Tokenizer",
    "open_template",
]
