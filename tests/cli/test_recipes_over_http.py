"""Artifacts in the kernels' layout behind a real process on the CPU, where weights are decoded to float32."""

from pathlib import Path

import openai
import pytest

from ninfer.engine.artifact import convert
from ninfer.engine.artifact.recipe import BUILT_IN
from tests.cli.test_serve import served
from tests.fixtures import GoldenPrompt


@pytest.mark.contract("D18")
def test_a_recipe_that_loses_nothing_serves_the_golden_tokens(
    golden_folder: Path, golden_prompts: tuple[GoldenPrompt, ...], golden_cache: Path, tmp_path: Path
) -> None:
    """The golden weights are bf16 numbers, so nothing may change. A prompt is the last user message as it is."""
    folder = tmp_path / "hf"
    folder.mkdir()
    for file in golden_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "chat_template.jinja").write_bytes((golden_folder / "raw_template.jinja").read_bytes())
    convert(folder, tmp_path / "m.ninfer", name="golden", recipe=BUILT_IN["bf16"])
    prompt = golden_prompts[0]
    with (
        served(tmp_path / "m.ninfer", golden_cache, "--max-context", "512", "--prefill-chunk", "64") as process,
        openai.OpenAI(base_url=f"{process.base_url}/v1", api_key="x", max_retries=0, timeout=60) as client,
    ):
        answer = client.chat.completions.create(
            model="golden",
            messages=[{"role": "user", "content": prompt.text}],
            max_completion_tokens=len(prompt.greedy),
            temperature=0,
            presence_penalty=0,
        )
    assert answer.choices[0].message.content == prompt.greedy_text
