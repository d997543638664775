"""The benchmark's work: find the shape that is meant, measure, keep what was found after each recipe. Imports JAX."""

import json
import os
from pathlib import Path

from rich.console import Console

from ninfer.cli.bench import BenchOptions
from ninfer.cli.bench_file import write_report
from ninfer.cli.deep_stack import in_thread
from ninfer.cli.failure import Failure
from ninfer.demo import artifact_file
from ninfer.engine.artifact import TEXT, Artifact, ArtifactError, default_cache_dir
from ninfer.engine.bench.report import Report
from ninfer.engine.bench.run import CannotMeasure, Given, Wish, run_benchmark
from ninfer.engine.bench.subject import PLAIN_KV_FORMAT, PLAIN_RECIPE, RECIPES, STACKED_KV_FORMATS, default_recipe
from ninfer.engine.model.config import ConfigError, TextConfig, parse_text_config
from ninfer.engine.model.published import PUBLISHED
from ninfer.engine.programs.footprint import prepare_allocator

DEMO = "demo"


def run_bench(options: BenchOptions, command: str, errors: Console) -> Report:
    """Measure what `options` ask for.

    Raises:
        Failure: there is no such shape, recipe or format, or it does not fit.
    """
    config = model_shape(options.config)
    longest = max((*options.context, *options.prefill), default=0)
    if longest > config.max_position_embeddings:
        raise Failure(f"{longest} tokens: the native context of {options.config} is {config.max_position_embeddings}")
    prepare_allocator()
    given = Given(
        name=options.config,
        config=config,
        subjects=subjects(options),
        command=command,
        program_cache=(options.cache_dir or default_cache_dir(os.environ)) / "programs",
    )
    wish = Wish(
        batches=options.batch,
        contexts=options.context,
        prompts=options.prefill,
        chunk_tokens=options.prefill_chunk,
        steps=options.steps,
        runs=options.runs,
        kernels=options.kernels,
    )

    def keep(report: Report) -> None:
        if options.json is not None:
            write_report(options.json, report)

    with errors.status("starting") as status:
        try:
            return in_thread(lambda: run_benchmark(given, wish, status.update, keep), name="ninfer-bench")
        except (CannotMeasure, OSError) as error:  # OSError: the folder of compiled programs
            raise Failure(str(error)) from error


def subjects(options: BenchOptions) -> tuple[tuple[str, str], ...]:
    """Each recipe with each format of keys and values.

    Raises:
        Failure: a name that is none.
    """
    recipes = options.recipe or (default_recipe(),)
    for recipe in recipes:
        if recipe not in RECIPES:
            raise Failure(f"--recipe {recipe}: there are {', '.join(RECIPES)}")
    for kv_format in options.kv_format:
        if kv_format not in STACKED_KV_FORMATS:
            raise Failure(f"--kv-format {kv_format}: there are {', '.join(STACKED_KV_FORMATS)}")
    if options.kv_format and PLAIN_RECIPE in recipes:
        raise Failure(f"--kv-format: recipe {PLAIN_RECIPE} keeps keys and values in {PLAIN_KV_FORMAT}")
    return tuple(
        (recipe, kv_format)
        for recipe in recipes
        for kv_format in ((PLAIN_KV_FORMAT,) if recipe == PLAIN_RECIPE else options.kv_format or STACKED_KV_FORMATS[:1])
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
        file = path / "config.json" if path.is_dir() else path
        return parse_text_config(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        names = ", ".join((*PUBLISHED, DEMO))
        raise Failure(f"--config {name}: {error.strerror}; shapes with a name: {names}") from error
    except (ValueError, AttributeError, ConfigError, ArtifactError) as error:
        raise Failure(f"--config {name}: {error}") from error
