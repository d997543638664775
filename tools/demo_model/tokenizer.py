"""The model's own byte-level BPE: about 8K entries, cut so that copying works token by token.

A space is always a token of its own, a digit too, and words end where letters end, camelCase humps included. So a
name reads as the same tokens in a JSON declaration, in a sentence and in a call, however it is surrounded. That costs
more tokens per sentence and is what lets so small a model copy words it has never seen.

`python -m tools.demo_model.tokenizer --words FILE --out DIR` trains it on generated conversations.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.demo_model.generate.mixture import draw
from tools.demo_model.render import pieces
from tools.demo_model.words import Words, load_lists

VOCAB_SIZE = 8192
# (content, special): the family marks turns and vision as special, tags of text as ordinary added tokens.
ADDED = (
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
)
WORD = r"\p{Lu}*[\p{Ll}\p{Lo}\p{Lm}\p{Lt}\p{M}]+|\p{Lu}+"
MARKS = r"[^\s\p{L}\p{N}\p{M}]+"
SPLIT = rf"\p{{N}}|{WORD}|{MARKS}(?: {MARKS})*|\n+| +|\s"


def untrained() -> Tokenizer:
    """The tokenizer's fixed parts."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def texts(words: Words, count: int) -> Iterator[str]:
    """Training text: conversations without their control tokens, and each word of the lists."""
    for _ in range(count):
        text = "".join(piece.text for piece in pieces(draw(words)))
        for content, _special in ADDED:
            text = text.replace(content, "\n")
        yield text


def train(words: Words, count: int) -> Tokenizer:
    """Train on `count` conversations. Deterministic for a seed."""
    tokenizer = untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=14,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(words, count), trainer)
    tokenizer.add_tokens([AddedToken(content, special=special, normalized=False) for content, special in ADDED])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, template: str) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja as a Hugging Face folder has them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    decoder = {
        str(tokenizer.token_to_id(content)): {
            "content": content,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": special,
        }
        for content, special in ADDED
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "added_tokens_decoder": decoder,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 4096,
        "split_special_tokens": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=40_000)
    args = parser.parse_args()
    words = Words(load_lists(args.words), random.Random(20_000_003), "train")
    tokenizer = train(words, args.conversations)
    save(tokenizer, args.out, (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8"))
    print("entries:", tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
