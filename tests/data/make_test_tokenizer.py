"""Make the test tokenizer: a byte-level vocabulary of exactly the golden model's 320 ids.

    python -m tests.data.make_test_tokenizer tests/data/golden/dense_text

It reads `inputs.json` of the folder and writes tokenizer.json, tokenizer_config.json and generation_config.json there.

The ids that occur in the golden prompts and continuations stand for one character each: a printable ASCII character, or
one of U+00C0.. whose two UTF-8 bytes join in one merge. Since 0xC3 is always followed by its own second byte in valid
UTF-8, a text of such characters has exactly one tokenization, character by character, so golden ids can be sent as
text. The other ids are the other single bytes (all 256 are covered, so every text has a tokenization), the family's
control tokens, and more characters from U+00C0.. on.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

VOCABULARY_TOKENS = 320
CONTROLS = {
    # spelling: whether it is "special"; the family leaves its markup tokens visible
    "<|endoftext|>": True,
    "<|im_start|>": True,
    "<|im_end|>": True,
    "<|vision_start|>": True,
    "<|vision_end|>": True,
    "<|image_pad|>": True,
    "<|video_pad|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
    "<tool_response>": False,
    "</tool_response>": False,
    "<think>": False,
    "</think>": False,
}
PRINTABLE = [chr(code) for code in range(0x21, 0x7F)]
FIRST_PAIR = 0xC0


def byte_alphabet() -> dict[int, str]:
    """Byte -> the character by which byte-level vocabularies spell it."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + index) for index, byte in enumerate(moved)}


def assign(prompts: list[dict[str, list[int]]]) -> dict[int, str]:
    """Golden id -> the character it stands for: letters for what the model says, a space inside a prompt."""
    said = {token for prompt in prompts for token in prompt["greedy"]}
    asked = {token for prompt in prompts for token in prompt["input_ids"]} - said
    edges = {prompt["input_ids"][end] for prompt in prompts for end in (0, -1)}
    # A space at the edge of a message, or of a reply, might be trimmed on the way: it goes where no edge is.
    space = min(asked - edges - set(prompts[0]["input_ids"]))
    letters = sorted(PRINTABLE, key=lambda character: (not character.isalpha(), character))
    pairs = iter(range(FIRST_PAIR, FIRST_PAIR + VOCABULARY_TOKENS))
    supply: Iterator[str] = iter([*letters, *(chr(code) for code in pairs)])
    return {space: " "} | {token: next(supply) for token in [*sorted(said), *sorted(asked - {space})]}


def build(prompts: list[dict[str, list[int]]]) -> dict[str, object]:
    """tokenizer.json and its two companions, by file name."""
    alphabet = byte_alphabet()
    golden = assign(prompts)
    free = [token for token in range(VOCABULARY_TOKENS) if token not in golden]
    controls = dict(zip(CONTROLS, free[-len(CONTROLS) :], strict=True))
    free = free[: -len(CONTROLS)]
    single = {ord(character) for character in golden.values() if character.isascii()}
    rest = [byte for byte in range(256) if byte not in single]
    vocabulary = {alphabet[byte]: token for byte, token in zip(rest, free, strict=False)}
    characters = dict(golden)
    next_pair = max([FIRST_PAIR - 1, *(ord(c) for c in golden.values() if not c.isascii())]) + 1
    for offset, token in enumerate(free[len(rest) :]):
        characters[token] = chr(next_pair + offset)
    merges = []
    for token, character in sorted(characters.items(), key=lambda item: item[1]):
        spelled = [alphabet[byte] for byte in character.encode()]
        vocabulary["".join(spelled)] = token
        if len(spelled) == 2:
            merges.append(spelled)
    vocabulary |= controls
    if sorted(vocabulary.values()) != list(range(VOCABULARY_TOKENS)) or not set(alphabet.values()) <= set(vocabulary):
        raise SystemExit("the golden ids leave no room for 256 bytes and the control tokens")
    added = [
        {
            "id": token,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": CONTROLS[text],
        }
        for text, token in controls.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1])),
            "merges": merges,
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
    }
    generation = {"eos_token_id": [controls["<|im_end|>"], controls["<|endoftext|>"]]}
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config, "generation_config.json": generation}


def main() -> None:
    """Write the three files into the folder named on the command line."""
    folder = Path(sys.argv[1])
    prompts = json.loads((folder / "inputs.json").read_text())["prompts"]
    for name, value in build(prompts).items():
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
