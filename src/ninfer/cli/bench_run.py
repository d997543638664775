"""The benchmark's work: find the shape that is meant, measure, keep what was found after each recipe. Imports JAX."""

import os
from pathlib import Path

from rich.console import Console

from ninfer.cli.bench import TILE_TOKENS, BenchOptions
from ninfer.cli.bench_file import write_report
from ninfer.cli.deep_stack import in_thread
from ninfer.cli.failure import Failure
from ninfer.cli.telling import telling
from ninfer.demo import artifact_file
from ninfer.engine.artifact import TEXT, Artifact, ArtifactError, default_cache_dir
from ninfer.engine.artifact.checked import parse_json
from ninfer.engine.artifact.checkpoint import read_text_config
from ninfer.engine.artifact.mapping import exists, read_small
from ninfer.engine.bench.report import Report
from ninfer.engine.bench.run import CannotMeasure, Given, Wish, run_benchmark
from ninfer.engine.bench.subject import PLAIN_KV_FORMAT, PLAIN_RECIPE, RECIPES, STACKED_KV_FORMATS, default_recipe
from ninfer.engine.model.config import ConfigError, TextConfig, parse_text_config
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.footprint import prepare_allocator

DEMO = "demo"
DEFAULT_CONTEXT_TOKENS, DEFAULT_PROMPT_TOKENS = 1024, 8192


def run_bench(options: BenchOptions, command: str, errors: Console) -> Report:
    """Measure what `options` ask for.

    Raises:
        Failure: there is no such shape, recipe or format, or it does not fit.
    """
    config = model_shape(options.config)
    wish = wish_of(options, config.max_position_embeddings)
    prepare_allocator()
    given = Given(
        name=options.config,
        config=config,
        subjects=subjects(options),
        command=command,
        program_cache=(options.cache_dir or default_cache_dir(os.environ)) / "programs",
    )

    def keep(report: Report) -> None:
        if options.json is not None:
            write_report(options.json, report)

    with telling(errors) as tell:
        try:
            return in_thread(lambda: run_benchmark(given, wish, tell, keep), name="ninfer-bench")
        except (CannotMeasure, OSError) as error:  # OSError: the folder of compiled programs
            raise Failure(str(error)) from error


def wish_of(options: BenchOptions, native_tokens: int) -> Wish:
    """What to measure of a model whose context has `native_tokens`; lengths that were not given are cut to it.

    Raises:
        Failure: a length that does not fit.
    """
    contexts = (min(DEFAULT_CONTEXT_TOKENS, native_tokens),) if options.context is None else options.context
    prompts = (min(DEFAULT_PROMPT_TOKENS, native_tokens),) if options.prefill is None else options.prefill
    least = options.steps + TILE_TOKENS
    if contexts and min(contexts) < least:
        raise Failure(f"--context {min(contexts)}: {options.steps} steps need a context of at least {least}")
    longest = max((*contexts, *prompts), default=0)
    if longest > native_tokens:
        raise Failure(f"{longest} tokens: the native context of {options.config} is {native_tokens}")
    return Wish(
        batches=options.batch,
        contexts=contexts,
        prompts=prompts,
        chunk_tokens=options.prefill_chunk,
        steps=options.steps,
        runs=options.runs,
        kernels=options.kernels,
    )


def subjects(options: BenchOptions) -> tuple[tuple[str, str], ...]:
    """Each recipe with each format of keys and values.

    Raises:
        Failure: a name that is none.
    """
    recipes = options.recipe or (default_recipe(),)
    for recipe in recipes:
        if recipe not in RECIPES:
            raise Failure(f"--recipe {recipe}: there are {', '.join(RECIPES)}")
    for kv_format in options.kv_dtype:
        if kv_format not in STACKED_KV_FORMATS:
            raise Failure(f"--kv-dtype {kv_format}: there are {', '.join(STACKED_KV_FORMATS)}")
    if options.kv_dtype and PLAIN_RECIPE in recipes:
        raise Failure(f"--kv-dtype: recipe {PLAIN_RECIPE} keeps keys and values in {PLAIN_KV_FORMAT}")
    return tuple(
        (recipe, kv_format)
        for recipe in recipes
        for kv_format in ((PLAIN_KV_FORMAT,) if recipe == PLAIN_RECIPE else options.kv_dtype or STACKED_KV_FORMATS[:1])
    )


def model_shape(name: str) -> TextConfig:
    """The shape that `name` means.

    Raises:
        Failure: no published name and no file, or one that describes no model of ours.
    """
    if name in PUBLISHED:
        return PUBLISHED[name]
    try:
        if name == DEMO:
            with Artifact.open(artifact_file()) as artifact:
                return parse_text_config(artifact.config(TEXT))
        path = Path(name)
        if not exists(path):
            raise Failure(f"--config {name}: no such file; shapes with a name: {', '.join((*PUBLISHED, DEMO))}")
        file = path / "config.json" if path.is_dir() else path
        _, config = read_text_config(parse_json(read_small(file), file=file, object=None))
        return parse_text_config(config)
    except ArtifactError as error:
        raise Failure(f"--config {error}") from error
    except ConfigError as error:
        raise Failure(f"--config {name}: {error}") from error
