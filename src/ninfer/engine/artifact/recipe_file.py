"""Read a recipe by name or from a TOML or JSON file. Knows files, not models; what recipes mean is in `recipe.py`.

name = "mine"                # without it the file's name
[[rules]]                    # the first that matches a tensor counts
tensors = ["*.mlp.*"]        # one or several shell patterns on logical names
format = "nvfp4"
encoder = "amax"             # for nvfp4 only: search (the default) or amax
"""

import tomllib
from pathlib import Path

from ninfer.engine.artifact.checked import Checked, parse_json
from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.mapping import read_file
from ninfer.engine.artifact.recipe import BUILT_IN, ENCODERS, RULE_FORMATS, Recipe, Rule, RuleRecipe

ENDINGS = (".toml", ".json")


def find_recipe(name: str) -> Recipe:
    """The built-in recipe `name`, or the one in the file `name`, which ends in .toml or .json.

    Raises:
        ArtifactError: there is none, or the file is malformed.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    file = Path(name)
    if file.suffix not in ENDINGS:
        known = ", ".join(BUILT_IN)
        raise ArtifactError(f"no such recipe; there are {known}, and files that end in .toml or .json", file=file)
    root = _parse(file)
    root.only("name", "rules")
    rules = tuple(_rule(item) for item in root.member("rules").items())
    return RuleRecipe(name=root.member("name").label() if root.has("name") else file.stem, rules=rules, file=file)


def _parse(file: Path) -> Checked:
    data = read_file(file)
    if file.suffix == ".json":
        return parse_json(data, file=file, object=None)
    try:
        return Checked(tomllib.loads(data.decode("utf-8")), "", file)
    except ValueError as error:  # TOMLDecodeError, or not UTF-8
        raise ArtifactError(f"malformed TOML: {error}", file=file) from None


def _rule(item: Checked) -> Rule:
    item.only("tensors", "format", "encoder")
    tensors, form = item.member("tensors"), item.member("format")
    patterns = tuple(one.text() for one in tensors.items()) if isinstance(tensors.value, list) else (tensors.text(),)
    if form.text() not in RULE_FORMATS:
        raise form.error(f"unknown format {form.text()!r}, a rule can ask for {', '.join(RULE_FORMATS)}")
    encoder = None
    if item.has("encoder"):
        member = item.member("encoder")
        encoder = member.text()
        if encoder not in ENCODERS.get(form.text(), ()):
            known = ", ".join(ENCODERS.get(form.text(), ())) or "no choice"
            raise member.error(f"unknown encoder {encoder!r}: for {form.text()} there is {known}")
    return Rule(tensors=patterns, format=form.text(), encoder=encoder)
