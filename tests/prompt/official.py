"""A template of the family's form in words of our own: it refuses what the family's official templates refuse."""

SOURCE = r"""
{%- if not messages %}{{- raise_exception('a conversation needs a message') }}{% endif %}
{%- set thinks = enable_thinking is undefined or enable_thinking is not false %}
{%- set ns = namespace(blocks=[], tools='', query=-1) %}
{%- if thinks and reasoning_effort is defined %}
    {%- if reasoning_effort == 'low' %}{% set ns.blocks = ['Think in one line.'] %}
    {%- elif reasoning_effort == 'xhigh' %}{% set ns.blocks = ['Think twice.'] %}
    {%- elif reasoning_effort != 'medium' %}{{- raise_exception('no such effort: ' ~ reasoning_effort) }}{% endif %}
{%- endif %}
{%- if tools %}
    {%- for tool in tools %}{% set ns.tools = ns.tools ~ '\n' ~ (tool | tojson) %}{% endfor %}
    {%- set ns.blocks = ns.blocks + ['# Tools\n<tools>' ~ ns.tools ~ '\n</tools>\nTo call one, write <tool_call>.'] %}
{%- endif %}
{%- if messages[0].role == 'system' and messages[0].content | trim %}
    {%- set ns.blocks = ns.blocks + [messages[0].content | trim] %}
{%- endif %}
{%- if ns.blocks %}{{- '<|im_start|>system\n' ~ (ns.blocks | join('\n\n')) ~ '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.query = loop.index0 %}{% endif %}{% endfor %}
{%- if ns.query < 0 %}{{- raise_exception('a conversation needs a user') }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{- raise_exception('a system message comes first') }}{% endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\n' ~ (message.content | trim) ~ '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set answer = message.content | trim %}
        {{- '<|im_start|>assistant\n' }}
        {%- if preserve_thinking is not defined or preserve_thinking or loop.index0 > ns.query %}
            {{- '<think>\n' ~ (message.reasoning_content | default('') | trim) ~ '\n</think>\n\n' }}
        {%- endif %}
        {{- answer }}
        {%- for call in message.tool_calls or [] %}
            {{- ('\n' if not loop.first else ('\n\n' if answer else '')) }}
            {{- '<tool_call>\n<function=' ~ call.function.name ~ '>\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' ~ key ~ '>\n' ~ (value if value is string else value | tojson) ~ '\n</parameter>\n' }}
            {%- endfor %}
            {{- '</function>\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' ~ message.content | trim ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
    {%- else %}{{- raise_exception('unknown role ' ~ message.role) }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n<think>\n' }}{% if not thinks %}{{- '\n</think>\n\n' }}{% endif %}
{%- endif %}
"""
