"""Cache frontiers: exact numbers of tokens, or nothing; the prompt is the same with and without them."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import (
    CachePoint,
    GenerationRequest,
    Part,
    Reasoning,
    Role,
    Text,
    ThinkingFields,
    Tool,
    ToolCall,
    Turn,
)
from ninfer.prompt import ChatTemplate, PreparedPrompt, PromptBuilder, Tokenizer
from ninfer.prompt.maintained import maintained_variant
from ninfer.prompt.messages import FAILED_CALL
from tests.prompt import official, published, tiny

TINY = tiny.tokenizer()
FAMILY = maintained_variant(ChatTemplate(official.SOURCE))
assert FAMILY is not None
BUILDER = PromptBuilder(TINY, FAMILY)
HERE = CachePoint()
CALL = ToolCall(id="c", name="look", arguments={"at": "x"})


def turn(role: Role, *parts: str | Part, is_error: bool = False) -> Turn:
    wrapped = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Turn(role=role, parts=wrapped, is_error=is_error)


def tool(name: str, *, cache_point: bool = False) -> Tool:
    declaration = {"type": "function", "function": {"name": name, "parameters": {}}}
    return Tool(name=name, declaration=declaration, cache_point=cache_point)


def build(
    *turns: Turn,
    tools: Sequence[Tool] = (),
    enabled: bool | None = None,
    builder: PromptBuilder = BUILDER,
) -> PreparedPrompt:
    request = GenerationRequest(turns=turns, tools=tuple(tools), thinking=ThinkingFields(enabled=enabled))
    prompt = builder.build(request)
    bare = GenerationRequest(
        turns=tuple(
            attrs.evolve(turn, parts=tuple(part for part in turn.parts if not isinstance(part, CachePoint)))
            for turn in turns
        ),
        tools=tuple(attrs.evolve(tool, cache_point=False) for tool in tools),
        thinking=request.thinking,
    )
    assert builder.build(bare).tokens == prompt.tokens
    return prompt


def asked(prompt: PreparedPrompt, tokenizer: Tokenizer = TINY) -> list[str]:
    """What stands before each frontier that the caller has asked for."""
    return [tokenizer.decode(prompt.tokens[:count]) for count in prompt.frontiers.asked]


@pytest.mark.contract("CACHE-HINT-005", "CACHE-HINT-010", "ANTH-040")
@pytest.mark.parametrize(
    ("turns", "ends"),
    [
        ([turn("user", "hi there", HERE)], ["ser\nhi there"]),  # before the tokens that close the turn
        ([turn("user", "hi", HERE, " there")], [">user\nhi"]),
        ([turn("user", "hi there\n", HERE)], ["ser\nhi there"]),  # templates trim
        ([turn("user", "hi\n", HERE, "there\n", HERE)], ["ser\nhi\n", "r\nhi\nthere"]),
        ([turn("user", "in t", HERE, "he middle")], []),  # within a token
        ([turn("user", "a <|im_", HERE, "end|> b")], []),  # within the spelling of a control token
        ([turn("user", "a <|im_end|>", HERE, " b")], ["\na <|im_end|>"]),
        ([turn("user", HERE, "x")], ["<|im_start|>user\n"]),
        ([turn("user", "", HERE)], ["<|im_start|>user\n"]),
        ([turn("user", "e", HERE, "\u0301")], []),  # one character for the tokenizer
        ([turn("system", "be brief", HERE), turn("user", "x", HERE)], ["tem\nbe brief", "|>user\nx"]),
        ([turn("user", "x", HERE), turn("assistant", "y", HERE), turn("user", "z")], [">user\nx", "k>\n\ny"]),
        (
            [turn("user", "x"), turn("assistant", "y", CALL, HERE), turn("tool", "r", HERE)],
            ["</tool_call>", "response>\nr"],
        ),
        ([turn("user", "x"), turn("assistant", CALL, HERE, CALL), turn("tool", "r")], []),  # between two calls
        ([turn("user", "x"), turn("assistant", HERE, CALL), turn("tool", "r")], []),  # text there would change it
        ([turn("user", "x"), turn("assistant", CALL), turn("tool", "r", HERE, is_error=True)], ["ailed.]\nr"]),
        ([turn("user", "x"), turn("assistant", Reasoning("why"), HERE, "y"), turn("user")], ["think>\n\n"]),
    ],
)
def test_places_that_callers_ask_for(turns: list[Turn], ends: list[str]) -> None:
    found = asked(build(*turns))
    assert len(found) == len(ends)
    assert all(one.endswith(end) for one, end in zip(found, ends, strict=True)), found


@pytest.mark.contract("ANTH-040")
def test_a_place_in_the_turn_that_is_continued() -> None:
    prompt = build(turn("user", "x"), turn("assistant", "Once upon", HERE, " a time", HERE), enabled=False)
    whole = TINY.decode(prompt.tokens)
    assert asked(prompt) == [whole.removesuffix(" a time"), whole]


@pytest.mark.contract("CACHE-HINT-010", "ANTH-040")
@pytest.mark.parametrize("marked", [(0,), (1,), (0, 1), ()])
def test_places_behind_declarations(marked: tuple[int, ...]) -> None:
    tools = [tool(name, cache_point=at in marked) for at, name in enumerate(["look", "lookup"])]
    prompt = build(turn("system", "s"), turn("user", "x"), tools=tools)
    assert len(prompt.frontiers.asked) == len(marked)
    for at, count in zip(marked, prompt.frontiers.asked, strict=True):
        before = TINY.decode(prompt.tokens[:count])
        assert before.count('"function": {"name"') == at + 1
        assert before.rstrip().endswith("}}}")
        # Whatever comes behind, the tokens up to there are the same.
        other = build(turn("user", "y"), tools=[*tools[: at + 1], tool("more")])
        assert other.tokens[:count] == prompt.tokens[:count]


def test_a_template_that_does_not_show_declarations_as_json_has_no_place_behind_them() -> None:
    builder = PromptBuilder(TINY, ChatTemplate("{% for t in tools %}{{ t.function.name }};{% endfor %}"))
    assert build(turn("user"), tools=[tool("look", cache_point=True)], builder=builder).frontiers.asked == ()


@pytest.mark.parametrize(
    ("turns", "tools", "leading"),
    [
        ([turn("user", "x")], [], ""),
        ([turn("system", "s"), turn("user", "x")], [], "<|im_start|>system\ns<|im_end|>\n"),
        ([turn("system", "s"), turn("developer", "d"), turn("user", " ")], [], "\ns\n\nd<|im_end|>\n"),
        ([turn("user", "x")], [tool("look")], "write <tool_call>.<|im_end|>\n"),
        ([turn("tool", "r")], [tool("look")], "write <tool_call>.<|im_end|>\n"),
        ([turn("system", "s"), turn("assistant", CALL), turn("tool", "r")], [], "system\ns<|im_end|>\n"),
    ],
)
def test_the_leading_block_and_the_opener(turns: list[Turn], tools: list[Tool], leading: str) -> None:
    prompt = build(*turns, tools=tools)
    found = prompt.frontiers.leading
    assert (TINY.decode(prompt.tokens[:found]) if found else "").endswith(leading)
    assert (found is None) == (not leading)
    assert prompt.frontiers.opener is not None
    assert TINY.decode(prompt.tokens[prompt.frontiers.opener :]) == "<|im_start|>assistant\n<think>\n"


def test_the_opener_of_a_turn_that_is_continued() -> None:
    prompt = build(turn("user", "x"), turn("assistant", Reasoning("why"), "so"), enabled=False)
    assert prompt.frontiers.opener is not None
    rest = TINY.decode(prompt.tokens[prompt.frontiers.opener :])
    assert rest == "<|im_start|>assistant\n<think>\nwhy\n</think>\n\nso"


def test_a_template_that_shows_content_twice_or_judges_it_has_no_places() -> None:
    for source in ("{{ messages[0].content * 2 }}", "{{ messages[0].content | length }}", "{{ 'x' }}"):
        builder = PromptBuilder(TINY, ChatTemplate(source))
        assert build(turn("system", "s", HERE), turn("user", "x", HERE), builder=builder).frontiers.asked == ()


parts = st.lists(
    st.one_of(st.text(max_size=4), st.sampled_from(["the ", "\n", " ", "<|im_", "end|>", "think>"])).map(Text)
    | st.just(HERE),
    max_size=6,
)


@given(parts, parts, parts)
def test_every_frontier_is_exact(one: list[Part], two: list[Part], three: list[Part]) -> None:
    """And the prompt is the one without marks: `build` asserts it."""
    turns = turn("system", *one), turn("user", *two), turn("assistant", *three), turn("user", "x")
    prompt = build(*turns)
    marks = sum(isinstance(part, CachePoint) for part in (*one, *two, *three))
    assert len(prompt.frontiers.asked) <= marks
    assert list(prompt.frontiers.asked) == sorted(set(prompt.frontiers.asked))
    whole = TINY.decode(prompt.tokens)
    for count in prompt.frontiers.asked:
        assert 0 < count <= len(prompt.tokens)
        assert whole.startswith(TINY.decode(prompt.tokens[:count]))


@pytest.mark.contract("CACHE-HINT-005")
def test_a_grown_body_matches_up_to_the_place(shared: Path) -> None:
    tokenizer = published.tokenizer(shared)
    for family in ("qwen3_6", "qwen3_8"):
        own = published.template(shared, family)
        for template in (own, maintained_variant(own)):
            assert template is not None
            builder = PromptBuilder(tokenizer, template)
            tools = [tool("look"), tool("lookup", cache_point=True)]
            turns = [turn("system", "You help.", HERE), turn("user", "Read this: a, b", HERE)]
            prompt = build(*turns, tools=tools, builder=builder)
            found = asked(prompt, tokenizer)
            ends = ["{}}}", "You help.", "this: a, b"]
            assert all(text.rstrip().endswith(end) for text, end in zip(found, ends, strict=True))
            grown = build(turns[0], turn("user", "Read this: a, b\n\nand that"), tools=tools, builder=builder)
            last = prompt.frontiers.asked[-1]
            assert grown.tokens[:last] == prompt.tokens[:last]
            assert tokenizer.decode(prompt.tokens[:last]).endswith("Read this: a, b")
            assert prompt.frontiers.asked[1] < (prompt.frontiers.leading or 0) < last < (prompt.frontiers.opener or 0)


def test_the_mark_of_a_failed_call_is_part_of_the_text() -> None:
    prompt = build(turn("user", "x"), turn("assistant", CALL), turn("tool", HERE, "r", is_error=True))
    (before,) = asked(prompt)
    assert before.endswith(f"{FAILED_CALL}\n")
