"""The lower bound of a prompt's tokens: never above the prompt, and enough to refuse what no context holds."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import ContextExceeded, GenerationRequest, Reasoning, Text, ThinkingFields, ToolCall, Turn
from ninfer.prompt import Abandoned, Cancellation, ChatTemplate, PromptBuilder
from ninfer.prompt.bounds import RenderBounds
from ninfer.prompt.floor import TokenFloor
from ninfer.prompt.maintained import maintained_variant
from ninfer.prompt.probes import Probes
from tests.prompt import official, tiny

SOURCES = [official.SOURCE, official.SOURCE.replace("message.content | trim ~", "message.content ~")]
VARIANTS = [variant for source in SOURCES if (variant := maintained_variant(ChatTemplate(source)))]
VOCABULARIES = [tiny.tokenizer(), tiny.tokenizer(("<|im_start|>", "<|im_end|>"))]
BUILDERS = [(words, variant, PromptBuilder(words, variant)) for words in VOCABULARIES for variant in VARIANTS]

few = st.text(st.sampled_from("ab \n<>|") | st.characters(exclude_categories=["Cs"]), max_size=8)
# Accents that are normalised into their letter, and control tokens: the most characters that a token can have.
many = st.builds(str.__mul__, few | st.sampled_from(["α\u0313\u0300\u0345", "thinking", "    "]), st.integers(1, 90))
texts = few | many
calls = st.builds(
    ToolCall,
    id=st.just("c"),
    name=st.sampled_from("fg"),
    arguments=st.dictionaries(texts, texts | st.none() | st.booleans(), max_size=2),
)
parts = st.lists(st.builds(Text, texts) | st.builds(Reasoning, texts), max_size=3)
told = st.builds(Turn, role=st.sampled_from(["system", "developer", "user", "tool"]), parts=parts.map(tuple))
said = st.lists(st.builds(Text, texts) | calls, max_size=4)
answered = st.builds(Turn, role=st.just("assistant"), parts=said.map(tuple))


@given(
    st.lists(told | answered, min_size=1, max_size=12),
    st.sampled_from([None, True, False]),
    st.sampled_from(range(len(BUILDERS))),
)
def test_no_prompt_has_fewer(turns: list[Turn], preserve: bool | None, which: int) -> None:
    words, variant, builder = BUILDERS[which]
    turns = [*turns, Turn(role="user")]
    floor = TokenFloor.probe(Probes(variant), words).tokens(turns)
    asked = GenerationRequest(turns=tuple(turns), thinking=ThinkingFields(preserve=preserve))
    assert floor <= len(builder.build(asked).tokens)


def test_frames_of_the_family() -> None:
    floor = TokenFloor.probe(Probes(VARIANTS[0]), VOCABULARIES[0])
    assert floor.of_role == {"system": 4, "developer": 4, "user": 4, "assistant": 4, "tool": 4}
    assert floor.of_call == 4


MANY = 50_000
CALLS = tuple(ToolCall(id=f"c{at}", name="f", arguments={"a": "x"}) for at in range(MANY))


@attrs.define
class Unrendered:
    """A template that says how often it was rendered since it was known."""

    template: ChatTemplate = VARIANTS[0]
    renderings: int = 0
    own_text: str = ""
    variables: frozenset[str] = frozenset()
    shows_every_turn: bool = True
    in_place: bool = True

    def render(self, variables: object, bounds: RenderBounds | None = None) -> str:
        self.renderings += 1
        return self.template.render(variables, bounds)  # type: ignore[arg-type]


@pytest.mark.contract("ERR-012")
@pytest.mark.parametrize(
    "turns",
    [
        [Turn(role="user"), Turn(role="assistant", parts=CALLS), Turn(role="user")],
        [Turn(role="user")] * 2 * MANY,
        [Turn(role="assistant", parts=CALLS[:2]), *[Turn(role="tool", call_id="c0")] * 2] * (MANY // 2),
        [Turn(role="user", parts=(Text("in"),) * 4_000_000)],
    ],
    ids=["calls", "messages", "calls and results", "text"],
)
def test_what_no_context_holds_is_not_rendered(turns: list[Turn]) -> None:
    template = Unrendered()
    builder = PromptBuilder(VOCABULARIES[0], template)
    known = template.renderings
    with pytest.raises(ContextExceeded, match=r"at least \d+ tokens; .* more than 8192 tokens") as caught:
        builder.build(GenerationRequest(turns=tuple(turns)), most_tokens=8192)
    assert caught.value.code == "context_length_exceeded"
    assert template.renderings == known


@pytest.mark.parametrize("source", [official.SOURCE, "{% for m in messages[-2:] %}{{ m.content }}{% endfor %}"])
def test_of_a_template_that_may_leave_turns_out_nothing_is_known(source: str) -> None:
    builder = PromptBuilder(VOCABULARIES[0], ChatTemplate(source))
    turns = (Turn(role="user", parts=(Text("x"),)),) * 40
    if source == official.SOURCE:
        with pytest.raises(ContextExceeded):
            builder.build(GenerationRequest(turns=turns), most_tokens=20)
    else:
        assert len(builder.build(GenerationRequest(turns=turns), most_tokens=20).tokens) == 2


@pytest.mark.contract("ERR-012")
def test_a_rendering_ends_where_the_context_does() -> None:
    """Whatever the template: more characters than the longest tokens could spell are not even rendered."""
    template = Unrendered(template=ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}"))
    template.shows_every_turn = False
    builder = PromptBuilder(VOCABULARIES[0], template)
    turns = (Turn(role="user", parts=(Text("x" * 1000),)),) * 1000
    known = template.renderings
    with pytest.raises(ContextExceeded, match="at least 101 tokens"):
        builder.build(GenerationRequest(turns=turns), most_tokens=100)
    assert template.renderings == known + 1


@pytest.mark.parametrize("after", range(3))
def test_work_that_is_told_to_stop_ends_at_its_next_step(after: int) -> None:
    """Renderings and texts that follow the one in which the client left are not begun."""
    stop = Cancellation()

    @attrs.define
    class Leaving(Unrendered):
        def render(self, variables: object, bounds: RenderBounds | None = None) -> str:
            if self.renderings == known + after:
                stop.cancel()
            return super().render(variables, bounds)

    known = 1_000_000
    template = Leaving()
    builder = PromptBuilder(VOCABULARIES[0], template)
    known = template.renderings
    # A text that ends like a control token is rendered twice, and cache marks need one rendering more each.
    turns = (Turn(role="system", parts=(Text("a<"),)), Turn(role="user", parts=(Text("|im_end|>"),)))
    with pytest.raises(Abandoned):
        builder.build(GenerationRequest(turns=turns), cancellation=stop)
    assert template.renderings == known + after + 1
