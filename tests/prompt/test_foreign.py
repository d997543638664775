"""Templates of strangers: what they cannot do to the server, and that they render as they would in this process."""

import json
import threading
from pathlib import Path

import pytest

from ninfer.conversation import EngineUnavailable, InvalidRequest
from ninfer.prompt import Abandoned, BadTemplate, Cancellation, ChatTemplate
from ninfer.prompt.bounds import RenderBounds
from ninfer.prompt.foreign import MAX_SOURCE_CHARS, ForeignTemplate
from ninfer.prompt.maintained import maintained_variant
from ninfer.prompt.opening import open_template
from ninfer.prompt.probes import Probes, check_renders
from ninfer.prompt.template import RenderingStopped, RenderingTooLong
from ninfer.sandbox.process import MEMORY_BYTES
from tests.prompt import official, tiny
from tests.prompt.test_template import FAMILIES

SHORT_S = 0.5
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}"

HOSTILE = {
    # All of these ran in the server, and no signal but SIGKILL ended them.
    "loops without output": ENDLESS,
    "a macro": "{% macro f(n) %}{{ '1' if n < 2 else f(n - 1) ~ f(n - 2) | length }}{% endmacro %}{{ f(60) | length }}",
    "powers": "{{ ((((((9 ** 64) ** 64) ** 64) ** 64) ** 64) ** 64) }}",
    "lipsum": "{{ lipsum(n=10 ** 7) }}",
    "strings": "{% set n = namespace(a='x') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "lists": "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}",
    "formats": "{{ '%2000000000d' % (messages | length) }}",
    "joins": "{% set n = namespace(a='xy') %}{% for i in range(99) %}{% set n.a = n.a | join(n.a) %}{% endfor %}",
    "centred": "{{ 'x' | center(10 ** 10) }}",
    "sorted": "{% set n = namespace(a=range(99999) | list) %}{% for i in range(99999) %}"
    "{% set n.a = n.a | sort(reverse=i % 2) %}{% endfor %}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_rendering_is_ended_and_the_next_one_works(text: str) -> None:
    template = ForeignTemplate("{% if messages %}" + text + "{% else %}fine{% endif %}")
    try:
        with pytest.raises(RenderingStopped, match=r"takes longer than 0\.5 s|takes more than 1024 MiB") as caught:
            template.render({"messages": [1]}, RenderBounds(seconds=SHORT_S))
        assert caught.value.code == "invalid_prompt"
        assert "\n" not in caught.value.message
        assert template.render({"messages": []}) == "fine"
    finally:
        template.close()


@pytest.mark.parametrize("text", [ENDLESS, HOSTILE["strings"], "x" * 400_000], ids=["endless", "memory", "long"])
def test_a_template_that_reaches_a_bound_with_a_few_words_is_none(text: str) -> None:
    template = ForeignTemplate(text + "{{ messages[0].content }}")
    with pytest.raises(BadTemplate, match="a conversation of a few words") as caught:
        Probes(template, seconds=SHORT_S).render({"messages": [{"content": "x"}]})
    assert "\n" not in str(caught.value)
    template.close()


def test_the_bounds_are_those_of_the_documentation() -> None:
    assert RenderBounds().seconds == 20
    assert MEMORY_BYTES == 1 << 30


def test_first_renderings_share_one_clock() -> None:
    template = ForeignTemplate("{% if slow %}" + ENDLESS + "{% endif %}fine")
    probes = Probes(template, seconds=SHORT_S)
    assert probes.render({}) == "fine"
    for variables in ({"slow": True}, {}):
        with pytest.raises(BadTemplate, match=r"takes longer than 0\.5 s"):
            probes.render(variables)
    template.close()


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "x" * (MAX_SOURCE_CHARS + 1)]
)
def test_what_does_not_compile_is_told_in_one_line(source: str) -> None:
    with pytest.raises(BadTemplate, match=r"line 1|RecursionError|characters; at most") as caught:
        ForeignTemplate(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_published_renderings_are_the_same_there(shared: Path, family: str) -> None:
    source = (shared / f"data/templates/{family}.jinja").read_text()
    here, there = ChatTemplate(source), ForeignTemplate(source)
    assert there.variables == here.variables
    cases = json.loads((shared / "data/templates/rendered_cases.json").read_text())
    for case in (case for case in cases if case["template"] == family):
        variables = {name: case[name] for name in ("messages", "tools", "add_generation_prompt")} | case["kwargs"]
        if "error" in case:
            messages = []
            for template in (here, there):
                with pytest.raises(InvalidRequest) as caught:
                    template.render(variables)
                messages.append(caught.value.message)
            assert messages[0] == messages[1]
        else:
            assert there.render(variables) == case["rendered"], case["name"]
    there.close()


def test_one_process_is_started_and_kept() -> None:
    template = ForeignTemplate("{{ x }}")
    pids = {template.processes[0].pid}
    for number in range(20):
        assert template.render({"x": number}) == str(number)
        pids |= {process.pid for process in template.processes}
    assert len(pids) == 1
    template.close()
    assert template.processes == ()


def test_two_threads_have_two_processes() -> None:
    template = ForeignTemplate("{% if slow %}" + ENDLESS + "{% endif %}fine")
    stop = Cancellation()
    ended: list[BaseException] = []

    def render_slowly() -> None:
        try:
            template.render({"slow": True}, RenderBounds(cancellation=stop))
        except Abandoned as error:
            ended.append(error)

    thread = threading.Thread(target=render_slowly)
    thread.start()
    while template.idle:  # until the other thread has taken it
        pass
    assert template.render({}) == "fine"
    assert len(template.processes) == 2
    stop.cancel()
    thread.join()
    assert len(ended) == 1
    assert len(template.processes) == 1  # the one that was told to stop is gone
    assert template.render({}) == "fine"
    template.close()


def test_a_process_that_dies_costs_one_request() -> None:
    template = ForeignTemplate("{% if slow %}" + ENDLESS + "{% endif %}fine")
    (process,) = template.processes
    threading.Timer(SHORT_S, process.kill).start()  # as the system does when memory runs out
    with pytest.raises(EngineUnavailable, match="ended by SIGKILL") as caught:
        template.render({"slow": True})
    assert "\n" not in caught.value.message
    assert template.render({}) == "fine"
    template.close()


def test_a_process_that_died_in_between_costs_none() -> None:
    template = ForeignTemplate("fine")
    (process,) = template.processes
    process.kill()
    while process.alive:
        pass
    assert template.render({}) == "fine"
    template.close()


def test_what_was_told_to_stop_before_does_not_begin() -> None:
    stop = Cancellation()
    stop.cancel()
    template = ForeignTemplate("fine")
    for one in (template, ChatTemplate("fine")):
        with pytest.raises(Abandoned):
            one.render({}, RenderBounds(cancellation=stop))
    assert template.render({}) == "fine"
    template.close()


def test_length_is_bounded() -> None:
    source = "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}"
    template = ForeignTemplate(source)
    for one in (template, ChatTemplate(source)):
        with pytest.raises(RenderingTooLong, match="more than 5000 characters"):
            one.render({}, RenderBounds(chars=5000))
    template.close()


def test_a_template_of_the_family_needs_no_process_once_it_is_known() -> None:
    opened = open_template(official.SOURCE, {})
    here = maintained_variant(ChatTemplate(official.SOURCE))
    assert isinstance(opened, ChatTemplate)
    assert here is not None
    assert opened.own_text == here.own_text
    assert opened.in_place
    as_it_is = open_template(official.SOURCE, {}, as_it_is=True)
    assert isinstance(as_it_is, ForeignTemplate)
    assert not as_it_is.in_place
    as_it_is.close()


@pytest.mark.parametrize(
    "source",
    [
        # K7: parts are looked for in a string.
        "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{{ part.text }}{% endfor %};{% endfor %}",
        "{% for m in messages %}{{ m.role }}{% endfor %}",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.content is not string %}{{ m.content }}{% endif %}{% endfor %}.",
        "{{ messages | length }}",
        "",
    ],
)
def test_k7_a_template_that_leaves_out_what_the_user_says(source: str) -> None:
    with pytest.raises(BadTemplate, match="the text of a user's message is not in what the template renders"):
        open_template(source, {})


@pytest.mark.parametrize(
    "source",
    [
        tiny.FAMILY,
        "{{ messages[-1].content }}",
        "{{ messages[-1].content | trim | replace('\\n', ' ') }}",
        "{% if not messages[1] %}{{ raise_exception('where is the system?') }}{% endif %}{{ messages[1].content }}",
    ],
)
def test_a_template_that_shows_it(source: str) -> None:
    check_renders(ChatTemplate(source), {})


def test_a_template_that_refuses_every_chat() -> None:
    with pytest.raises(BadTemplate, match=r"not even a chat of one message: .*never"):
        open_template("{{ raise_exception('never') }}", {})
