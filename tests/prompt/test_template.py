"""The template sandbox: verbatim renderings, refusals, and what a template cannot do."""

import datetime
import json
from pathlib import Path

import pytest

from ninfer.conversation import InvalidRequest
from ninfer.prompt import BadTemplate, ChatTemplate

FAMILIES = ("qwen3", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8")


@pytest.mark.parametrize("family", FAMILIES)
def test_published_renderings(shared: Path, family: str) -> None:
    template = ChatTemplate((shared / f"data/templates/{family}.jinja").read_text())
    cases = json.loads((shared / "data/templates/rendered_cases.json").read_text())
    cases = [case for case in cases if case["template"] == family]
    assert len(cases) == 25
    for case in cases:
        variables = {name: case[name] for name in ("messages", "tools", "add_generation_prompt")} | case["kwargs"]
        if "error" in case:
            with pytest.raises(InvalidRequest) as caught:
                template.render(variables)
            assert caught.value.code == "invalid_prompt"
            assert case["error"].partition(": ")[2] in caught.value.message, case["name"]
        else:
            assert template.render(variables) == case["rendered"], case["name"]


@pytest.mark.parametrize(
    ("source", "variables", "rendered"),
    [
        ("{{ x | tojson }}", {"x": {"b": "<é>&'", "a": [1, None, True]}}, '{"b": "<é>&\'", "a": [1, null, true]}'),
        ("{{ x | tojson(indent=1) }}", {"x": [1]}, "[\n 1\n]"),
        ("  {% if true %}\nx\n  {% endif %}\ny", {}, "x\ny"),  # trim_blocks and lstrip_blocks
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", {}, "1"),
        ("{{ strftime_now('%Y-%m-%d') }}", {}, "2020-02-03"),
        ("{{ missing }}|{{ missing is defined }}", {}, "|False"),
        ("{{ 'ab' * 3 }}{{ 2 ** 3 }}{{ 2 * 3 }}", {}, "ababab86"),
        ("{{ '<b>' }}", {}, "<b>"),
        ("{{ '{0.__class__}'.format('a') }}", {}, ""),  # reaches nothing
    ],
)
def test_renders(source: str, variables: dict[str, object], rendered: str) -> None:
    template = ChatTemplate(source, local_time=lambda: datetime.datetime(2020, 2, 3))
    assert template.render(variables) == rendered


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('not like this') }}", "not like this"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),  # SEC-06
        ("{{ x.append(1) }}", "unsafe"),
        ("{{ x.__init__.__globals__ }}", "unsafe"),
        ("{{ (x | attr('__class__')).mro() }}", ""),
        ("{% include '/etc/hostname' %}", ""),
        ("{% import 'os' as os %}", ""),
        ("{{ missing.deeper }}", "undefined"),
        ("{{ x + 'a' }}", "TypeError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError"),
        ("{{ 'a' * 100000000 }}", "too large"),
        ("{{ [0] * 100000000 }}", "too large"),
        ("{{ 9 ** 9999999 }}", "too large"),
        ("{{ range(10000000) }}", "OverflowError"),
        ("{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "too long"),
    ],
)
def test_refuses(source: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=f"(?i){reason}") as caught:
        ChatTemplate(source).render({"x": [1]})
    assert caught.value.code == "invalid_prompt"


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% nonsense %}", "{{ x | nofilter }}"])
def test_bad_templates(source: str) -> None:
    with pytest.raises(BadTemplate, match="line 1"):
        ChatTemplate(source)


def test_a_template_cannot_change_what_it_is_given() -> None:
    variables = {"x": {"a": 1}}
    for source in ("{{ x.update({'b': 2}) }}", "{% set _ = x.pop('a') %}", "{% set x.a = 2 %}"):
        with pytest.raises((InvalidRequest, BadTemplate)):
            ChatTemplate(source).render(variables)
    assert variables == {"x": {"a": 1}}
