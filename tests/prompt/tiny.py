"""A small byte-level tokenizer and a template of the family's form, for tests that need no real ones."""

import json
from typing import Any

from ninfer.prompt import ChatTemplate, Tokenizer
from ninfer.prompt.byte_level import CHARACTER_OF_BYTE

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>")
NOT_SPECIAL = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CONTROLS = (*SPECIAL, *NOT_SPECIAL)

_MERGES = ["t h", "th e", "i n", "< |", "| >", "i m", "im _", "e n", "en d", "< /", "th in", "thin k", "Ċ Ċ", "Ġ Ġ"]


def tokenizer_json(controls: tuple[str, ...] = CONTROLS, **changes: Any) -> dict[str, Any]:
    """256 bytes, a few merges, then the control tokens."""
    vocabulary = {CHARACTER_OF_BYTE[byte]: byte for byte in range(256)}
    for merge in _MERGES:
        vocabulary.setdefault(merge.replace(" ", ""), len(vocabulary))
    added = [
        {
            "id": len(vocabulary) + at,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": text in SPECIAL,
        }
        for at, text in enumerate(controls)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [merge.split(" ") for merge in _MERGES]},
        **changes,
    }


def tokenizer(controls: tuple[str, ...] = CONTROLS) -> Tokenizer:
    """The small tokenizer, ready for use."""
    return Tokenizer.from_files(
        json.dumps(tokenizer_json(controls)).encode(),
        tokenizer_config=json.dumps({"eos_token": "<|im_end|>"}).encode(),
        generation_config=b'{"eos_token_id": []}',
    )


FAMILY = """\
{%- if not messages %}{{ raise_exception('No messages provided.') }}{% endif %}
{%- if tools %}
    {{- '<|im_start|>tools' }}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}{{ '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(query=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}
        {%- set ns.query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}
        {{- '<|im_start|>system\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content | trim %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1] | trim %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if preserve_thinking is defined and preserve_thinking is true or loop.index0 > ns.query %}
            {{- '<|im_start|>assistant\n<think>\n' + reasoning + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>' + call.function.name }}
            {%- for name, value in call.function.arguments | items %}
                {{- '\n' + name + '=' + (value if value is string else value | tojson) }}
            {%- endfor %}
            {{- '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + content + '\n</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- raise_exception('Unexpected message role.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}
"""


def template(source: str = FAMILY) -> ChatTemplate:
    """The family's form of template, or another source."""
    return ChatTemplate(source)
