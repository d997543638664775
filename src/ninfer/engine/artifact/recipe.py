"""Recipes: which numeric format and layout each tensor of a model gets in an artifact.

Knows tensor names and shapes, no values. A recipe is built in or a TOML or JSON file; docs/conversion.md has the table.
What kernels ask for is not a recipe's to choose: the embedding is looked up by rows and stays bf16 in order, the two
small projections that gate the recurrence stay bf16 in order, and all that is no matrix of a product stays fp32.

Invariant: matrices that a device joins into one (`JOINED`), and those of the same kind in all layers, which it keeps in
one stack, get one format and layout.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import attrs

from ninfer.engine.artifact.errors import ArtifactError
from ninfer.engine.artifact.formats import BF16, FORMATS, FP32, INT8_ROW, NVFP4_SEARCH, Format, Shape
from ninfer.engine.artifact.layouts import CONTIGUOUS, FRAGMENT, Layout

RULE_FORMATS = ("bf16", "fp8_row", "int8_g32", "q4_g64", "q5_g64", "q6_g64", "nvfp4")
"""What a rule can ask for."""
ENCODERS: Mapping[str, tuple[str, ...]] = {"nvfp4": ("search", "amax")}
"""Formats with several encoders, the default first."""

JOINED = (
    ("linear_attn.in_proj_qkv.weight", "linear_attn.in_proj_z.weight"),
    ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
)
"""Matrices of a layer that read the same input, and that a device reads as one matrix."""

_IN_ORDER = ("embed_tokens.weight", "linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight")
"""Matrices that no kernel reads in tiles."""


@attrs.frozen(kw_only=True)
class Choice:
    """How one tensor is stored."""

    format: Format
    layout: Layout = CONTIGUOUS


@attrs.frozen(kw_only=True)
class Given:
    """A tensor that waits for its choice."""

    shape: Shape
    stored_type: str
    """The safetensors type: F32, F16 or BF16."""


@attrs.frozen(kw_only=True)
class Chosen:
    """What a recipe says about a model."""

    choices: Mapping[str, Choice]
    """By logical name."""
    notes: tuple[str, ...] = ()
    """One sentence for each kind of tensor that gets something else than was asked for."""


class Recipe(Protocol):
    """Chooses for all tensors of a model."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def choose(self, tensors: Mapping[str, Given]) -> Chosen:
        """A choice for each tensor.

        Raises:
            ArtifactError: the recipe contradicts itself, or says nothing of a tensor.
        """
        ...

    def to_json(self) -> dict[str, object]:
        """Everything that decides, for an artifact's provenance."""
        ...


@attrs.frozen(kw_only=True)
class PlainRecipe:
    """Everything in order, one format by the kind of tensor; what programs in float32 read fastest."""

    name: str

    def choose(self, tensors: Mapping[str, Given]) -> Chosen:
        """`source` keeps all values, `fp32` widens them, `int8_row` rounds matrices and leaves the rest in fp32."""
        return Chosen(choices={name: Choice(format=self._format(given)) for name, given in tensors.items()})

    def to_json(self) -> dict[str, object]:
        """Its name says it."""
        return {"name": self.name}

    def _format(self, given: Given) -> Format:
        if self.name == "source":
            return BF16 if given.stored_type == "BF16" else FP32
        return INT8_ROW if self.name == "int8_row" and len(given.shape) == 2 else FP32


@attrs.frozen(kw_only=True)
class Rule:
    """Matrices of products whose logical name matches one of `tensors` (shell patterns) get `format`."""

    tensors: tuple[str, ...]
    format: str = attrs.field(validator=attrs.validators.in_(RULE_FORMATS))
    encoder: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.encoder is not None and self.encoder not in ENCODERS.get(self.format, ()):
            raise ValueError(f"{self.format} has no encoder {self.encoder!r}")

    def matches(self, name: str) -> bool:
        """Whether the tensor is meant."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.tensors)

    def form(self) -> Format:
        """The format, with its encoder."""
        return NVFP4_SEARCH if (self.format, self.encoder or "search") == ("nvfp4", "search") else FORMATS[self.format]

    def to_json(self) -> dict[str, object]:
        """As in a recipe file, the encoder spelled out."""
        value: dict[str, object] = {"tensors": list(self.tensors), "format": self.format}
        encoder = self.encoder or next(iter(ENCODERS.get(self.format, ())), None)
        return value | ({"encoder": encoder} if encoder else {})


@attrs.frozen(kw_only=True)
class RuleRecipe:
    """Matrices of products by the first rule that matches, in the layout that kernels read; the rest is fixed."""

    name: str
    rules: tuple[Rule, ...]
    file: Path | None = None
    """Where it was read from, for messages."""

    def choose(self, tensors: Mapping[str, Given]) -> Chosen:
        """See `Recipe`. A matrix that its format or layout cannot hold is bf16, with all that it is joined with."""
        choices: dict[str, Choice] = {}
        notes: Counter[str] = Counter()
        matched: set[Rule] = set()
        stacks: dict[str, tuple[str, Rule]] = {}
        for names in _joined(tensors):
            if not _is_product(names[0], tensors[names[0]].shape):
                matrix = len(tensors[names[0]].shape) == 2
                choices[names[0]] = Choice(format=BF16 if matrix else FP32)
                continue
            rules = [self._rule(name) for name in names]
            matched.update(rules)
            self._agree("a device reads these as one matrix", list(zip(names, rules, strict=True)))
            first = stacks.setdefault(tensor_kind(names[0]), (names[0], rules[0]))
            self._agree("a device keeps all layers in one stack", [first, (names[0], rules[0])])
            shapes = [tensors[name].shape for name in names]
            choice, why = _fitting(rules[0].form(), shapes)
            choices |= dict.fromkeys(names, choice)
            if why is not None:
                kinds = " and ".join(tensor_kind(name) for name in names)
                notes[f"{kinds}: stored as {choice.format.name}, {choice.layout.name}, since {why}"] += 1
        told = [f"{note} ({count} times)" if count > 1 else note for note, count in notes.items()]
        told += [
            f"recipe {self.name}: {list(rule.tensors)} matches nothing" for rule in self.rules if rule not in matched
        ]
        return Chosen(choices={name: choices[name] for name in tensors}, notes=tuple(told))

    def to_json(self) -> dict[str, object]:
        """Name and rules."""
        return {"name": self.name, "rules": [rule.to_json() for rule in self.rules]}

    def _rule(self, name: str) -> Rule:
        for rule in self.rules:
            if rule.matches(name):
                return rule
        raise self._error(f"no rule for {name}")

    def _agree(self, why: str, found: Sequence[tuple[str, Rule]]) -> None:
        if len({rule.form() for _, rule in found}) > 1:
            each = [" ".join([name, rule.format, *([rule.encoder] if rule.encoder else [])]) for name, rule in found]
            raise self._error(f"{why}, so they need one format: {', '.join(each)}")

    def _error(self, message: str) -> ArtifactError:
        return ArtifactError(message, file=self.file or Path(f"recipe {self.name}"))


def _joined(tensors: Mapping[str, Given]) -> Iterator[tuple[str, ...]]:
    """All names, those of matrices that are joined together as one tuple."""
    done: set[str] = set()
    for name in tensors:
        if name in done:
            continue
        together = next((names for names in JOINED if name.endswith(names)), None)
        if together is None:
            yield (name,)
            continue
        ending = next(ending for ending in together if name.endswith(ending))
        members = tuple(name.removesuffix(ending) + member for member in together)
        done.update(members)
        yield tuple(member for member in members if member in tensors)


def _is_product(name: str, shape: Shape) -> bool:
    """Whether kernels multiply with the tensor, tile by tile."""
    return len(shape) == 2 and not name.endswith(_IN_ORDER)


def _fitting(form: Format, shapes: list[Shape]) -> tuple[Choice, str | None]:
    """The format in tiles for all shapes, or the next best, and why."""
    why = None
    for choice in (Choice(format=form, layout=FRAGMENT), Choice(format=BF16, layout=FRAGMENT)):
        try:
            for shape in shapes:
                choice.layout.stored(choice.format, shape)
        except ValueError as error:
            why = why or str(error)
        else:
            return choice, why
    return Choice(format=BF16), why


def tensor_kind(name: str) -> str:
    """A tensor's name without its layer."""
    return re.sub(r"(^|\.)layers\.\d+\.", r"\1layers.*.", name)


def _uniform(name: str, format: str) -> RuleRecipe:
    return RuleRecipe(name=name, rules=(Rule(tensors=("*",), format=format),))


_MLP_IN = ("*.mlp.gate_proj.weight", "*.mlp.up_proj.weight")

BUILT_IN: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        PlainRecipe(name="source"),
        PlainRecipe(name="fp32"),
        PlainRecipe(name="int8_row"),
        _uniform("bf16", "bf16"),
        _uniform("fp8", "fp8_row"),
        _uniform("int8", "int8_g32"),
        _uniform("q4", "q4_g64"),
        _uniform("nvfp4", "nvfp4"),
        # After the published recipe of the same name. It gives queries and keys four bits and values five; what is
        # joined here has one format, so it is five.
        RuleRecipe(
            name="groupwise",
            rules=(
                Rule(tensors=("mtp.*",), format="int8_g32"),
                Rule(tensors=("lm_head.weight",), format="q6_g64"),
                Rule(tensors=_MLP_IN, format="q4_g64"),
                Rule(tensors=("*",), format="q5_g64"),
            ),
        ),
        RuleRecipe(
            name="nvfp4_fp8",
            rules=(
                Rule(tensors=("layers.*.mlp.*",), format="nvfp4"),
                Rule(tensors=("*",), format="fp8_row"),
            ),
        ),
    )
}
"""The recipes that need no file."""
