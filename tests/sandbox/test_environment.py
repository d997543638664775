"""What templates of models find in their environment: the tags, globals and filters that trainers' tools give them."""

import datetime
from collections.abc import Mapping

import pytest

from ninfer.sandbox.environment import MAX_REASON_CHARS, BadSource, Compiled, Refused


def rendered(source: str, **variables: object) -> str:
    return "".join(Compiled(source, lambda: datetime.datetime(2020, 2, 3, 4, 5)).pieces(variables))


CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": " yes "}]
LOOP = "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"


@pytest.mark.parametrize(
    ("source", "variables", "text"),
    [
        (LOOP, {"messages": CHAT}, "user:hi;assistant: yes ;"),  # K2
        ("{%- generation -%} a {%- endgeneration -%}", {}, "a"),
        ("x\n  {% generation %}\na\n  {% endgeneration %}\nb", {}, "x\na\nb"),
        ("{% for i in [1, 2] %}{% generation %}{% break %}{% endgeneration %}x{% endfor %}", {}, ""),
        ("{% for i in [1, 2] %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}", {}, "12"),
        ("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", {}, "1"),  # a scope, as trainers' tools
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", {}, "13"),
        ("{{ x | tojson }}", {"x": {"b": "<é>&'", "a": [None]}}, '{"b": "<é>&\'", "a": [null]}'),
        ("{{ x | tojson(true) }}", {"x": "é"}, '"\\u00e9"'),
        ("{{ x | tojson(ensure_ascii=true) }}", {"x": "é"}, '"\\u00e9"'),
        ("{{ x | tojson(indent=2) }}", {"x": {"a": 1}}, '{\n  "a": 1\n}'),
        ("{{ x | tojson(separators=(',', ':')) }}", {"x": {"a": 1, "b": 2}}, '{"a":1,"b":2}'),
        ("{{ x | tojson(sort_keys=true) }}", {"x": {"b": 1, "a": 2}}, '{"a": 2, "b": 1}'),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", {}, "03 Feb 2020 04:05"),
        ("{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{{ ns.a }}", {}, "2"),
    ],
)
def test_what_templates_use(source: str, variables: Mapping[str, object], text: str) -> None:
    assert rendered(source, **variables) == text


@pytest.mark.parametrize(
    "source", ["{% generation %}x", "x{% endgeneration %}", "{% generation x %}{% endgeneration %}"]
)
def test_tags_that_do_not_match(source: str) -> None:
    with pytest.raises(BadSource, match="line 1"):
        Compiled(source)


def test_names_that_a_template_reads() -> None:
    source = "{% set a = b %}{% for m in messages %}{% generation %}{{ m.c }}{{ d }}{% endgeneration %}{% endfor %}"
    assert Compiled(source).variables == {"b", "messages", "d"}


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "[" * 99 + "1" + "]" * 99 + " }}",
        "{% if a %}" * 300 + "{% endif %}" * 300,
        "{% for a in b %}" * 30 + "{% endfor %}" * 30,
    ],
    ids=["parentheses", "lists", "ifs", "loops"],
)
def test_nesting_that_the_compiler_cannot_take_is_one_line(source: str) -> None:
    with pytest.raises(BadSource) as caught:
        Compiled(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= MAX_REASON_CHARS + 10


def test_long_refusals_are_cut() -> None:
    with pytest.raises(Refused) as caught:
        rendered("{{ raise_exception('x' * 100000) }}")
    assert len(str(caught.value)) == MAX_REASON_CHARS + 3
