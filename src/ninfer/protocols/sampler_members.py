"""The sampler's members of a request body, with the ranges that every protocol takes them in.

    @attrs.frozen(kw_only=True)
    class Body(SamplerMembers):
        prompt: str

    structure(value, Body).sampling()      # SamplingFields

It knows names and ranges; which values count where none is given is the service's business.
"""

from typing import Annotated, TypeAlias

import attrs

from ninfer.conversation import SamplingFields
from ninfer.engine.types import MAX_CANDIDATES
from ninfer.protocols.structure import Integer, Number

INT64 = 1 << 63

Temperature: TypeAlias = Annotated[float, Number(0, 2)]
Share: TypeAlias = Annotated[float, Number(0, 1)]
Candidates: TypeAlias = Annotated[int, Integer(low=0, high=MAX_CANDIDATES)]
Penalty: TypeAlias = Annotated[float, Number(-2, 2)]
Seed: TypeAlias = Annotated[int, Integer(low=-INT64, high=INT64 - 1)]


@attrs.frozen(kw_only=True)
class SamplerMembers:
    """All of them, by the names that are common."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Candidates | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None

    def sampling(self) -> SamplingFields:
        """What they ask of the sampler."""
        return SamplingFields(**{field.name: getattr(self, field.name) for field in attrs.fields(SamplingFields)})
