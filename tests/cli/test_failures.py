"""A process whose engine fails: which failures it outlives, what /health says at once, and how it ends."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.test_serve import Process, raw_stream, read_all, served


def status_of(process: Process, path: str) -> int:
    try:
        with urllib.request.urlopen(process.base_url + path, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def refusal(process: Process, text: str) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        process.chat(text)
    return refused.value.code, json.load(refused.value)["error"]["code"]


@pytest.mark.contract("LIFE-022", "LIFE-023", "LIFE-025", "LIFE-026")
def test_one_failed_unit_is_outlived_and_a_crash_is_not(golden_chat_artifact: Path, tmp_path: Path) -> None:
    with served(golden_chat_artifact, tmp_path, "--engine", "scripted", "--max-context", "2048") as process:
        assert refusal(process, "[[err]]") == (500, "internal_error")
        assert refusal(process, "[[err:oom]]") == (503, "engine_out_of_memory")
        assert refusal(process, "[[err:lost]]") == (503, "engine_out_of_memory")
        assert status_of(process, "/health") == 200
        assert process.chat("[[say:well]]")["choices"][0]["message"]["content"] == "well"
        assert refusal(process, "[[err:crash]]") == (503, "service_unavailable")
        assert status_of(process, "/health") == 503
        assert refusal(process, "[[say:well]]") == (503, "service_unavailable")
        assert status_of(process, "/health") == 503
        assert process.child.poll() is None
        status, errors = process.end(signal.SIGTERM)
    assert status == 0
    lines = [line[24:] for line in errors.splitlines()]
    assert "WARNING worker recovering from a failed request: the script asks for a failed check" in lines
    oom = "WARNING worker out of memory: RESOURCE_EXHAUSTED: the script asks for it - recovering"
    assert lines.count(oom) == 2
    assert "ERROR worker crash: the script asks for a crash" in lines


@pytest.mark.contract("LIFE-027")
def test_a_lost_device_ends_the_process(golden_chat_artifact: Path, tmp_path: Path) -> None:
    arguments = ("--engine", "scripted", "--max-context", "2048", "--max-concurrency", "2")
    with served(golden_chat_artifact, tmp_path, *arguments) as process:
        running = raw_stream(process, "[[pace:20]] [[pad:200]]")
        assert running.recv(15) == b"HTTP/1.1 200 \r\n"
        with pytest.raises(urllib.error.HTTPError):
            process.chat("[[err:device]]")
        _, errors = process.child.communicate(timeout=20)
        assert process.child.returncode == 1
        assert b'"code":"service_unavailable"' in read_all(running)
    lines = [line[24:] for line in errors.splitlines()]
    assert "ERROR worker crash: the script asks for a device error" in lines
    assert "CRITICAL the device is lost: the script asks for a device error" in lines


@pytest.mark.contract("THINK-001", "THINK-002", "THINK-007", "THINK-009", "OPT-046")
@pytest.mark.parametrize("flags", [(), ("--no-thinking",)])
def test_a_budget_of_thinking(golden_chat_artifact: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    arguments = ("--engine", "scripted", "--default-thinking-budget", "3", "--thinking-budget-message", " Enough.")
    with served(golden_chat_artifact, tmp_path, *arguments, *flags, "--max-context", "2048") as process:
        answer = process.chat("[[think]] [[say:done]]", max_tokens=100)
        message, usage = answer["choices"][0]["message"], answer["usage"]
        assert message["content"] == "done"
        thought = message.get("reasoning_content") or ""
        if flags:
            assert thought == ""
        else:
            begun, _, rest = thought.partition(" Enough.")
            assert "Let me think about that.".startswith(begun)
            assert begun
            assert rest == ""
            assert usage["completion_tokens"] > 3 + 4
        process.end(signal.SIGTERM)
