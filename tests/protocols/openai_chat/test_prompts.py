"""From a Chat body to a prompt: efforts that leave it to the server, cache hints as places in the prompt."""

from typing import Any

import pytest

from ninfer.prompt import ChatTemplate, PreparedPrompt, PromptBuilder
from ninfer.protocols.openai_chat.decode import decode
from tests.prompt import official, tiny

contract = pytest.mark.contract
WORDS = tiny.tokenizer()
TEMPLATE = ChatTemplate(official.SOURCE)


def prepared(*, effort: str | None = None, **members: Any) -> PreparedPrompt:
    """The prompt of a body on a server whose own effort is `effort`."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}
    return PromptBuilder(WORDS, TEMPLATE, effort=effort).build(decode(body).request)


@contract("CHAT-025", "D7")
@pytest.mark.parametrize("alias", ["default", "auto", None])
@pytest.mark.parametrize("configured", ["low", "xhigh", "none", None])
def test_default_and_auto_are_the_server_s_own_effort(alias: str | None, configured: str | None) -> None:
    own = prepared(effort=configured, reasoning_effort=alias)
    assert own.tokens == prepared(reasoning_effort=configured).tokens
    # A level that the request names is stronger than the server's.
    assert prepared(effort=configured, reasoning_effort="xhigh").tokens == prepared(reasoning_effort="xhigh").tokens


@contract("CHAT-026", "TMPL-018", "D6")
def test_thinking_is_the_template_s_own_unless_it_is_said() -> None:
    assert prepared().thinking
    assert not prepared(enable_thinking=False).thinking
    assert prepared(enable_thinking=False).tokens == prepared(chat_template_kwargs={"enable_thinking": False}).tokens


MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
PARTS: list[Any] = [{"type": "text", "text": "one ", **MARK}, {"type": "text", "text": "two"}]


@contract("CACHE-HINT-001", "CACHE-HINT-010")
def test_hints_become_places_in_the_prompt_and_change_none_of_it() -> None:
    plain: Any = [{key: part[key] for key in ("type", "text")} for part in PARTS]
    explicit = {"prompt_cache_options": {"mode": "explicit"}}
    hinted = prepared(messages=[{"role": "user", "content": PARTS}])
    unhinted = prepared(messages=[{"role": "user", "content": plain}], **explicit)
    assert hinted.tokens == unhinted.tokens
    assert unhinted.frontiers.asked == ()
    ends = [WORDS.decode(hinted.tokens[:count]) for count in hinted.frontiers.asked]
    assert ends == ["<|im_start|>user\none ", "<|im_start|>user\none two"]


@contract("CACHE-HINT-011")
@pytest.mark.parametrize("key", ["a", "b", ""])
def test_the_cache_key_is_no_part_of_anything(key: str) -> None:
    assert prepared(prompt_cache_key=key) == prepared()
