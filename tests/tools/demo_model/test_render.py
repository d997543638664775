"""The fast renderer writes what the template writes, and every check accepts the answer it was made with."""

import functools
import json
from pathlib import Path
from typing import Any, NoReturn

import attrs
import jinja2
import jinja2.sandbox
import pytest

from tools.demo_model import checks
from tools.demo_model.evaluate import TASKS
from tools.demo_model.generate import mixture
from tools.demo_model.render import Example, pieces, prompt_text
from tools.demo_model.words import Words

TEMPLATE = Path(__file__).parents[3] / "tools" / "demo_model" / "chat_template.jinja"


def refuse(message: str) -> NoReturn:
    raise ValueError(message)


@functools.cache
def compiled() -> jinja2.Template:
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    made.globals["raise_exception"] = refuse
    return made.from_string(TEMPLATE.read_text(encoding="utf-8"))


def template(example: Example, *, messages: list[dict[str, Any]], opens: bool) -> str:
    effort = {} if example.effort is None else {"reasoning_effort": example.effort}
    return compiled().render(
        messages=messages,
        tools=example.tools,
        enable_thinking=example.thinking,
        preserve_thinking=example.preserve,
        add_generation_prompt=opens,
        **effort,
    )


def test_rendered_as_by_the_template(words: Words) -> None:
    for maker, _ in mixture.MIXTURE:
        for _ in range(4):
            example = maker(words)
            rendered = "".join(piece.text for piece in pieces(example))
            assert rendered == template(example, messages=example.messages, opens=False)
            assert prompt_text(example) == template(example, messages=example.messages[:-1], opens=True)


def test_what_is_learned_is_what_follows_the_generation_prompt(words: Words) -> None:
    for _ in range(40):
        example = mixture.draw(words)
        *_, answer, newline = pieces(example)
        assert answer.learned
        assert answer.text.endswith("<|im_end|>")
        assert (newline.text, newline.learned) == ("\n", False)


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"story", "definition"}))
def test_checks_accept_the_answer_that_was_meant(words: Words, task: str) -> None:
    for _ in range(30):
        example = TASKS[task](words)
        reply = [piece.text for piece in pieces(example) if piece.learned][-1].removesuffix("<|im_end|>")
        thought, answer = checks.split_thought(reply, example.thinking)
        assert bool(thought) == example.thinking
        assert checks.verdict(example.check, answer, example.tools), (example.check, answer)
        if example.check["kind"] == "json":
            assert checks.valid_shape(example.check, answer)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "at least one message"),
        ([{"role": "assistant", "content": "a"}], "needs a user message"),
        ([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "comes first"),
        ([{"role": "user", "content": "a"}, {"role": "oracle", "content": "b"}], "unknown role: oracle"),
        ([{"role": "user", "content": [{"type": "sound"}]}], "a content part is"),
        ([{"role": "system", "content": [{"type": "image"}]}, {"role": "user", "content": "a"}], "text only"),
    ],
)
def test_the_template_refuses(messages: list[dict[str, Any]], complaint: str) -> None:
    example = Example(task="", messages=messages)
    with pytest.raises(ValueError, match=complaint):
        template(example, messages=messages, opens=False)


def test_images_and_videos_have_their_marks() -> None:
    content = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "video"}]
    example = Example(task="", messages=[{"role": "user", "content": content}])
    text = template(example, messages=example.messages, opens=True)
    marks = ("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")
    assert text.startswith(f"<|im_start|>user\n{marks[0]}and{marks[1]}<|im_end|>\n")


def test_thoughts_in_the_content_are_found_and_old_ones_can_be_dropped() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
        {"role": "user", "content": "c"},
    ]
    example = Example(task="", messages=messages)
    assert "<think>\nhm\n</think>\n\nb<|im_end|>" in template(example, messages=messages, opens=False)
    without = attrs.evolve(example, preserve=False)
    assert "<|im_start|>assistant\nb<|im_end|>" in template(without, messages=messages, opens=False)
