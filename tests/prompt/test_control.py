"""Control tokens that a caller spells stay text, wherever the text stands and whatever stands beside it."""

import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CachePoint,
    GenerationRequest,
    InvalidRequest,
    Reasoning,
    Text,
    ThinkingFields,
    Tool,
    ToolCall,
    Turn,
)
from ninfer.prompt import ChatTemplate, PromptBuilder, Tokenizer
from ninfer.prompt.caller import CallerText, Variables, caller_json
from ninfer.prompt.control import SafeRendering
from ninfer.prompt.encoded import EncodedRendering
from ninfer.prompt.maintained import maintained_variant
from tests.prompt import official, published, tiny

TINY = tiny.tokenizer()
FAMILY = tiny.template()
IDS = frozenset(TINY.control_tokens.values())

# Shows every place in which a caller's text can reach a template.
EVERYWHERE = ChatTemplate(
    "<|im_start|>{{ turn.content | trim }}<|im_end|>{{ turn.content }}<think>{{ turn.content.strip('\\n') }}</think>"
    "{% for name, value in turn.arguments | items %}<{{ name }}>{{ value | tojson }}<tool_call>{% endfor %}"
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ kwarg | upper }}{{ parts | join('') }}"
    "{% if '</think>' in turn.content or '<tool_response>' in turn.content %}<|endoftext|>{% endif %}"
)

fragments = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [*tiny.CONTROLS, "<", "<|", "<|im_", "im_end", "end|>", "|>", ">", "</", "think", "/think", " ", "\n"]
    ),
    st.sampled_from(["\ue000", "\ue001", "\U000f0000", "\u0338", "e\u0301"]),
)
texts = st.lists(fragments, max_size=5).map("".join)


def places(text: str) -> dict[str, object]:
    """`text` in every place of `EVERYWHERE`."""
    return {
        "turn": {"content": text, "arguments": {text: [text, {"k": text}], "n": 1.5}},
        "tools": [{"type": "function", "function": {"name": text, "description": text, "strict": None}}],
        "kwarg": text,
        "parts": [text, text],
    }


def everywhere(text: str) -> dict[str, Variables]:
    """The same, as a caller's."""
    return {name: caller_json(value) for name, value in places(text).items()}


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def encode_rendering(
    tokenizer: Tokenizer, template: ChatTemplate, variables: Mapping[str, Variables]
) -> tuple[int, ...]:
    return EncodedRendering(SafeRendering(tokenizer, template, variables), tokenizer).tokens


def controls(tokens: tuple[int, ...], known: frozenset[int] = IDS) -> list[int]:
    return [token for token in tokens if token in known]


BARE = controls(encode_rendering(TINY, EVERYWHERE, everywhere("x")))


def test_the_probe_template_shows_its_own_control_tokens() -> None:
    spelled = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<tool_call>"]
    assert [TINY.decode((token,)) for token in BARE] == spelled


@pytest.mark.contract("TMPL-011")
@given(texts)
def test_only_the_template_writes_control_tokens(text: str) -> None:
    assert controls(encode_rendering(TINY, EVERYWHERE, everywhere(text))) == BARE


@pytest.mark.contract("TMPL-011")
@pytest.mark.parametrize("around", ["{}", "a {} b", "\n{}\n", "{0}{0}", "<|im_{}end|>", "<{}", "{}>"])
@pytest.mark.parametrize("control", tiny.CONTROLS)
def test_every_control_token_in_every_place(control: str, around: str) -> None:
    """VIS-07, VIS-08, VIS-09, VIS-10."""
    text = around.format(control)
    tokens = encode_rendering(TINY, EVERYWHERE, everywhere(text))
    assert controls(tokens) == BARE
    assert TINY.decode(tokens).count(text) >= 2  # and it is all there


@given(texts)
def test_ids_are_those_of_the_rendering_where_nothing_is_quoted(text: str) -> None:
    if TINY.control_pattern.search(text) or TINY.control_pattern.search(text.upper()):
        return
    plain = EVERYWHERE.render(places(text))
    tokens = encode_rendering(TINY, EVERYWHERE, everywhere(text))
    if controls(TINY.encode(plain)) == BARE:  # else text and template spell one together
        assert tokens == TINY.encode(plain)


@given(texts)
def test_the_text_of_the_prompt_is_the_rendering(text: str) -> None:
    """But for the template's own decisions about what it finds in the text."""
    template = ChatTemplate("<|im_start|>{{ text | trim }}<|im_end|>{{ text }}")
    tokens = encode_rendering(TINY, template, {"text": CallerText(text)})
    assert TINY.decode(tokens) == f"<|im_start|>{composed(text.strip())}<|im_end|>{composed(text)}"


@pytest.mark.parametrize(
    ("source", "texts", "own"),
    [
        ("{{ a }}end|>", ["<|im_"], 0),
        ("{{ a | trim }}end|>", ["hello <|im_ \n"], 0),
        ("<|im_{{ a }}", ["end|> hello"], 0),
        ("<|im_{{ a | trim }}", [" \n end|> hello"], 0),
        ("<{{ a | trim }}>", ["  think "], 0),
        ("<{{ a }}>", ["think"], 0),
        ("<{{ a }}>", ["/think"], 0),
        ("{{ a }}{{ b }}", ["<|im", "_end|>"], 0),
        ("{{ a }}{{ b }}{{ a }}", ["<", "think>"], 0),
        ("<think>{{ a }}</think>", ["> quoted <"], 2),
        ("<{{ a }}><think>", ["x"], 1),
    ],
)
def test_a_control_token_made_of_text_and_template_is_text(source: str, texts: list[str], own: int) -> None:
    variables: dict[str, Variables] = dict(zip("ab", map(CallerText, texts), strict=False))
    tokens = encode_rendering(TINY, ChatTemplate(source), variables)
    assert len(controls(tokens)) == own
    assert TINY.decode(tokens) == ChatTemplate(source).render(dict(zip("ab", texts, strict=False)))


@pytest.mark.parametrize(
    "source", ["{% if a == '<' %}yes{% endif %}", "{% if a != '<' %}{{ raise_exception('') }}{% endif %}yes"]
)
def test_the_logic_of_a_template_sees_edges(source: str) -> None:
    assert TINY.decode(encode_rendering(TINY, ChatTemplate(source), {"a": CallerText("<")})) == "yes"


@pytest.mark.parametrize("text", ["</think>", "<think>\nno\n</think>\n\nyes", "<tool_response>x</tool_response>"])
def test_the_logic_of_a_template_does_not_see_quoted_tokens(text: str) -> None:
    turns = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": text},
        {"role": "user", "content": "x"},
    ]
    variables: dict[str, Variables] = {
        "messages": [{"role": turn["role"], "content": CallerText(turn["content"])} for turn in turns],
    }
    assert TINY.decode(encode_rendering(TINY, FAMILY, variables)).count(text) == 2


@given(st.sampled_from(["", *tiny.CONTROLS]), texts)
def test_a_continuation_is_text(start: str, text: str) -> None:
    template = ChatTemplate("<think>\n\n</think>{{ '\\n\\n' }}")
    reply = CallerText(start + text)
    rendering = SafeRendering(
        TINY, template, {}, continuation=[reply], finish=lambda opened, spell: opened + spell(reply)
    )
    tokens = EncodedRendering(rendering, TINY).tokens
    assert len(controls(tokens)) == 2
    assert TINY.decode(tokens) == f"<think>\n\n</think>\n\n{composed(start + text)}"


def test_private_characters_of_the_caller_are_kept_and_may_run_out() -> None:
    private = "".join(map(chr, range(0xE000, 0xF900)))
    template = ChatTemplate("{{ a }}")
    tokens = encode_rendering(TINY, template, {"a": CallerText(private + "<think>")})
    assert TINY.decode(tokens) == private + "<think>"
    private += "".join(map(chr, [*range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE)]))
    with pytest.raises(InvalidRequest, match="private") as caught:
        encode_rendering(TINY, template, {"a": CallerText(private + "<think>")})
    assert caught.value.code == "invalid_prompt"


def test_only_json_is_a_callers_json() -> None:
    with pytest.raises(TypeError, match="set"):
        caller_json({"a": {1}})


def everything(text: str) -> GenerationRequest:
    """A request with `text` in every field that can carry text to a template."""
    schema = {"type": "object", "properties": {text: {"enum": [text, {text: [text]}], "description": text}}}
    declaration = {"type": "function", "function": {"name": text, "description": text, "parameters": schema}}
    call = ToolCall(id=text, name=text, arguments={text: text, "n": [text, {text: 1}]})
    return GenerationRequest(
        turns=(
            Turn(role="system", parts=(Text(text),)),
            Turn(role="developer", parts=(Text(text), CachePoint(), Text(text))),
            Turn(role="user", parts=(Text(text),)),
            Turn(role="assistant", parts=(Reasoning(text), Text(text), call)),
            Turn(role="tool", parts=(Text(text), CachePoint()), call_id=text),
            Turn(role="tool", parts=(Text(text),), call_id=text, is_error=True),
            Turn(role="user", parts=(Text(text), CachePoint())),
            Turn(role="assistant", parts=(Reasoning(text), Text(text))),
        ),
        tools=(Tool(name="f", declaration=declaration, cache_point=True),),
        thinking=ThinkingFields(enabled=False, preserve=True),
        template_kwargs={"style": text, "more": {text: [text]}},
    )


def family() -> ChatTemplate:
    found = maintained_variant(ChatTemplate(official.SOURCE))
    assert found is not None
    return found


KWARGS = ChatTemplate("{{ style }}{{ more | tojson }}" + FAMILY.source)


@pytest.mark.contract("TMPL-011")
@pytest.mark.parametrize("template", [family(), KWARGS], ids=["maintained", "with variables"])
@given(text=texts.filter(str.strip))
def test_only_the_template_writes_control_tokens_of_a_prompt(template: ChatTemplate, text: str) -> None:
    builder = PromptBuilder(TINY, template)
    assert controls(builder.build(everything(text)).tokens) == controls(builder.build(everything("x")).tokens)


@pytest.mark.contract("TMPL-011")
@pytest.mark.parametrize("maintained", [False, True])
@pytest.mark.parametrize("family", ["qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"])
def test_every_published_control_token_in_every_field(shared: Path, family: str, maintained: bool) -> None:
    tokenizer, template = published.tokenizer(shared), published.template(shared, family)
    known = frozenset(tokenizer.control_tokens.values())
    if maintained:
        variant = maintained_variant(template)
        assert variant is not None
        template = variant
    builder = PromptBuilder(tokenizer, template)
    bare = controls(builder.build(everything("x")).tokens, known)
    for control in tokenizer.control_tokens:
        for text in (control, f"{control} and {control[:-1]}"):
            found = builder.build(everything(text)).tokens
            assert controls(found, known) == bare
            assert tokenizer.decode(found).count(control) >= 20
