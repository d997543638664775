"""The public surface: what packages export, and the few names that plugins of others may rely on."""

import ast
import importlib
from importlib.metadata import entry_points

import pytest

import ninfer.protocols.plugin as plugin
from ninfer.service.host import ProtocolHost
from tests.architecture.source import ROOT, Source, sources

PACKAGES = [
    source
    for source in sources("src", "kernels_pallas")
    if source.path.name == "__init__.py" and "__all__" in source.text
]


@pytest.mark.parametrize("source", PACKAGES, ids=lambda source: source.name)
def test_exports_exist(source: Source) -> None:
    package = importlib.import_module(source.name.removeprefix("src/").removesuffix("/__init__.py").replace("/", "."))
    assert len(package.__all__) == len(set(package.__all__))
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_the_conversation_exports_all_that_it_defines() -> None:
    conversation = importlib.import_module("ninfer.conversation")
    defined = set()
    for source in sources("src/ninfer/conversation"):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                defined.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                defined.add(node.target.id)
            elif isinstance(node, ast.Assign):
                defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
    assert {name for name in defined if not name.startswith("_")} == set(conversation.__all__)
    assert all(hasattr(conversation, name) for name in conversation.__all__)


def members(interface: type) -> set[str]:
    return {name for name in vars(interface) if not name.startswith("_")} | set(
        vars(interface).get("__annotations__", ())
    )


def test_what_a_plugin_may_rely_on() -> None:
    """A change here breaks protocols of others: it belongs into the changelog."""
    assert plugin.ENTRY_POINT_GROUP == "ninfer.protocols"
    assert members(ProtocolHost) == {"model", "flags", "check_model", "count_tokens", "generate"}
    assert members(plugin.Protocol) == {"name", "request_id_header", "routes", "error", "stream_error"}
    assert members(plugin.Call) == {"request_id", "headers", "path_args", "query", "decoded", "reply", "stream"}
    assert members(plugin.FrameSink) == {"send"}
    fields = ["method", "path", "handler", "summary", "body", "streams"]
    assert [field.name for field in plugin.Route.__attrs_attrs__] == fields
    assert [field.name for field in plugin.StreamForm.__attrs_attrs__] == ["content_type", "keep_alive"]
    assert [field.name for field in plugin.WireError.__attrs_attrs__] == ["status", "body", "headers"]


HELPERS = {
    "structure": {
        "AnyObject", "Array", "Boolean", "Fault", "Flag", "Integer", "Number", "Object", "Rule", "String", "Text",
        "missing", "structure",
    },
    "sampler_members": {"SamplerMembers"},
    "function_tools": {"read_functions"},
    "call_results": {"ResultMatching"},
    "refusal": {"Refusals", "empty", "needs_vision", "never", "one_of", "refuse_fields", "unsupported"},
    "template_options": {"Said", "template_options"},
    "values": {"shown", "shown_name"},
    "sse": {"DONE", "data_frame", "dump_json", "event_frame", "json_line"},
    "openai_errors": {"openai_error", "openai_stream_error"},
    "plugin": {
        "EVENT_STREAM", "NDJSON", "Call", "FrameSink", "JSONValue", "ProtocolHost", "ReplyBody", "Route", "StreamForm",
        "WireError",
    },
}  # fmt: skip


@pytest.mark.parametrize("module", HELPERS)
def test_the_helpers_that_a_plugin_may_rely_on(module: str) -> None:
    found = importlib.import_module(f"ninfer.protocols.{module}")
    assert {name for name in HELPERS[module] if not hasattr(found, name)} == set()
    assert f"`{module}`" in (ROOT / "docs/plugins.md").read_text("utf-8") or module == "plugin"


def test_what_tests_of_a_plugin_may_rely_on() -> None:
    """Provisional: a change here is said in the changelog, and breaks tests of others all the same."""
    assert set(importlib.import_module("ninfer.testing").__all__) == {
        "CARD", "ASGIAnswer", "FakeHost", "OutOfOrder", "RunningServer", "ServerSettings", "Step", "asgi_call",
        "call_made", "check_order", "create_app", "error_samples", "finished", "generations", "json_lines", "post_json",
        "running_server", "script", "sse_data", "until",
    }  # fmt: skip


def test_built_in_protocols_register_like_any_other() -> None:
    ours = {entry.name: entry.value for entry in entry_points(group=plugin.ENTRY_POINT_GROUP) if entry.dist is not None
            and entry.dist.name == "ninfer"}  # fmt: skip
    assert ours == {
        "anthropic_messages": "ninfer.protocols.anthropic_messages:AnthropicMessages",
        "openai_chat": "ninfer.protocols.openai_chat:OpenAIChat",
        "openai_responses": "ninfer.protocols.openai_responses:OpenAIResponses",
    }
