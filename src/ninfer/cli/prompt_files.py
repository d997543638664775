"""The files that prompts are made with: read from an artifact when it is served, and checked before a conversion.

What cannot be served is not converted either, as far as these files tell: weights of many gigabytes come behind them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from ninfer.cli.failure import Failure
from ninfer.prompt import BadTemplate, BadTokenizer, PromptBuilder, Tokenizer, open_template

TOKENIZER = "tokenizer.json"
TEMPLATE = "chat_template.jinja"


def read_tokenizer(resource: Callable[[str], bytes | None], config: Mapping[str, object]) -> Tokenizer | None:
    """The tokenizer that `resource` has the files of, for the model with `config`; None if it has none.

    Raises:
        BadTokenizer: the files cannot be used, or no token ends a reply.
    """
    tokenizer_json = resource(TOKENIZER)
    if tokenizer_json is None:
        return None
    tokenizer = Tokenizer.from_files(
        tokenizer_json,
        tokenizer_config=resource("tokenizer_config.json"),
        special_tokens_map=resource("special_tokens_map.json"),
        generation_config=resource("generation_config.json"),
        model_config=config,
    )
    if not tokenizer.stop_tokens:
        raise BadTokenizer(
            "nothing names a token that ends a reply: no eos_token_id in generation_config.json or config.json, no "
            "eos_token in tokenizer_config.json or special_tokens_map.json"
        )
    return tokenizer


def check_folder(
    folder: Path, resources: Mapping[str, bytes], config: Mapping[str, object], *, template: bool = True
) -> None:
    """Make sure that the tokenizer and the `template` of a folder can be served, those of them that are there.

    Raises:
        Failure: they cannot.
    """
    try:
        tokenizer = read_tokenizer(resources.get, config)
        source = resources.get(TEMPLATE) if template else None
        if tokenizer is None or source is None:
            return
        opened = open_template(source.decode("utf-8"), tokenizer.named_tokens)
        PromptBuilder(tokenizer, opened)
        opened.close()
    except BadTokenizer as error:
        raise Failure(f"{folder}: {error}") from error
    except (BadTemplate, UnicodeDecodeError) as error:
        raise Failure(f"{folder}: chat template: {error}") from error
