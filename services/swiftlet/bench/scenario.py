"""What is stored and done: a scenario, as its file has it. Wrong files are refused with the names of fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from swiftlet.units import parse_size

MAX_STEPS = 100
"""Steps of a scenario: each is measured by itself and kept in the results."""
MAX_CONNECTIONS = 65_536
"""Connections of a step."""
MAX_OBJECTS = 100_000_000
"""Objects stored in advance."""
MAX_CONTAINERS = 1_000_000
"""Containers of a scenario."""
MAX_PIECES = 100
"""Sizes in a weighted list."""
MAX_OBJECT_BYTES = 5 << 40
"""Bytes of an object."""
MAX_SECONDS = 30 * 86_400.0
"""Seconds of each time in a scenario."""
MAX_RATE = 10_000_000.0
"""Operations per second of an open loop."""

Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=MAX_OBJECT_BYTES)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Connections = Annotated[int, Field(ge=1, le=MAX_CONNECTIONS)]
Rate = Annotated[float, Field(gt=0, le=MAX_RATE, allow_inf_nan=False)]


def _listed(value: object) -> object:
    """Take one value for a list of one."""
    return value if isinstance(value, (list, tuple)) else [value]


Piece: TypeAlias = tuple[float, int, int, int | None, float]
"""A distribution of sizes as the generator takes it: weight, least, most, and median and sigma of a lognormal one."""


class Part(BaseModel):
    """A part of a scenario, which refuses unknown names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Uniform(Part):
    """Sizes between two, all alike."""

    least: Size = Field(description="Smallest size")
    most: Size = Field(description="Largest size")

    @model_validator(mode="after")
    def _check(self) -> Uniform:
        if self.least > self.most:
            raise ValueError("least must not be larger than most")
        return self


class Lognormal(Part):
    """Sizes whose logarithm is normally distributed, as those of many file systems are."""

    median: Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=MAX_OBJECT_BYTES)] = Field(
        description="Half of the sizes are below it"
    )
    sigma: Annotated[float, Field(ge=0, le=20, allow_inf_nan=False)] = Field(
        description="Standard deviation of the natural logarithm"
    )
    least: Size = Field(default=0, description="Smaller ones are set to it")
    most: Size = Field(default=5 << 30, description="Larger ones are set to it")

    @model_validator(mode="after")
    def _check(self) -> Lognormal:
        if self.least > self.most:
            raise ValueError("least must not be larger than most")
        return self


class Weighted(Part):
    """A size, or sizes between two, and how many there are of it compared with the others."""

    weight: Weight = Field(description="Share of all, in proportion to the other weights")
    size: Size | None = Field(default=None, description="The size")
    uniform: Uniform | None = Field(default=None, description="Instead: sizes between two")

    @model_validator(mode="after")
    def _check(self) -> Weighted:
        if (self.size is None) == (self.uniform is None):
            raise ValueError("needs either size or uniform")
        return self


class Sizes(Part):
    """How large objects are: one of four distributions."""

    fixed: Size | None = Field(default=None, description="All of this size")
    uniform: Uniform | None = Field(default=None, description="All sizes between two alike")
    lognormal: Lognormal | None = Field(default=None, description="Many small and few large ones")
    weighted: Annotated[tuple[Weighted, ...], Field(min_length=1, max_length=MAX_PIECES)] | None = Field(
        default=None, description="Several sizes with their weights"
    )

    @model_validator(mode="after")
    def _check(self) -> Sizes:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of fixed, uniform, lognormal and weighted, not {len(given)}")
        if self.weighted is not None and not any(one.weight for one in self.weighted):
            raise ValueError("weighted needs a weight above 0")
        return self

    def pieces(self) -> list[Piece]:
        """Return the distribution as the generator takes it."""
        if self.fixed is not None:
            return [(1.0, self.fixed, self.fixed, None, 0.0)]
        if self.lognormal is not None:
            one = self.lognormal
            return [(1.0, one.least, one.most, one.median, one.sigma)]
        if self.uniform is not None:
            return [(1.0, self.uniform.least, self.uniform.most, None, 0.0)]
        assert self.weighted is not None
        return [
            (one.weight, one.size, one.size, None, 0.0)
            if one.size is not None
            else (one.weight, one.uniform.least, one.uniform.most, None, 0.0)  # type: ignore[union-attr]
            for one in self.weighted
        ]


class Operations(Part):
    """Which operations there are, each with its weight."""

    create: Weight = Field(default=0.0, description="PUT of a new object")
    read: Weight = Field(default=0.0, description="GET of an object, whole")
    update: Weight = Field(default=0.0, description="PUT over an object that there is")
    delete: Weight = Field(default=0.0, description="DELETE of an object")
    list: Weight = Field(default=0.0, description="GET of a container: a page of names, beginning anywhere")
    head: Weight = Field(default=0.0, description="HEAD of an object")

    @model_validator(mode="after")
    def _check(self) -> Operations:
        if not any(weight for _, weight in self.weights()):
            raise ValueError("at least one operation needs a weight above 0")
        return self

    def weights(self) -> tuple[tuple[str, float], ...]:
        """Return all operations with their weights."""
        return tuple((name, getattr(self, name)) for name in type(self).model_fields)


class Ramp(Part):
    """Connections that grow until a step gains too little."""

    first: Connections = Field(default=1, description="Connections of the first step")
    factor: Annotated[float, Field(gt=1, le=100)] = Field(default=2.0, description="Growth from step to step")
    last: Connections = Field(default=256, description="Connections of the last step")
    gain: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.05, description="The ramp ends when a step adds less than this share to the operations per second"
    )

    @model_validator(mode="after")
    def _check(self) -> Ramp:
        if self.first > self.last:
            raise ValueError("first must not be larger than last")
        return self

    def connections(self) -> Iterator[int]:
        """Return the connections of each step."""
        current = self.first
        while current < self.last:
            yield current
            current = min(self.last, max(current + 1, round(current * self.factor)))
        yield self.last


class Closed(Part):
    """Each connection begins its next operation when the last one has ended."""

    connections: (
        Annotated[tuple[Connections, ...], BeforeValidator(_listed), Field(min_length=1, max_length=MAX_STEPS)] | None
    ) = Field(default=None, description="Connections of each step")
    ramp: Ramp | None = Field(default=None, description="Instead: more of them until nothing is gained")
    think_s: Seconds = Field(default=0.0, description="Pause of a connection between two operations")
    think: Literal["even", "random"] = Field(default="even", description="Whether pauses are all alike")

    @model_validator(mode="after")
    def _check(self) -> Closed:
        if (self.connections is None) == (self.ramp is None):
            raise ValueError("needs either connections or ramp")
        if self.ramp is not None and sum(1 for _ in self.ramp.connections()) > MAX_STEPS:
            raise ValueError(f"ramp has more than {MAX_STEPS} steps; raise factor or lower last")
        return self


class Open(Part):
    """Operations begin at their times, whatever the store does; latency counts from there."""

    per_second: Annotated[tuple[Rate, ...], BeforeValidator(_listed), Field(min_length=1, max_length=MAX_STEPS)] = (
        Field(description="Operations per second of each step")
    )
    connections: Connections = Field(default=256, description="Operations that can be under way at a time")
    arrivals: Literal["even", "random"] = Field(
        default="random", description="Equal intervals, or exponential ones as those of many independent clients"
    )


class Scenario(Part):
    """A scenario file: what is stored, which operations are made, how many at a time, and for how long."""

    title: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="What it is, in a line")
    repeats: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Which table or figure of which source it repeats, and what differs"
    )
    about: Annotated[str, Field(max_length=1000)] = Field(default="", description="What it stands for")
    containers: Annotated[int, Field(ge=1, le=MAX_CONTAINERS)] = Field(
        default=1, description="Containers that objects are spread over"
    )
    objects: Annotated[int, Field(ge=0, le=MAX_OBJECTS)] = Field(
        default=0, description="Objects stored before measuring"
    )
    sizes: Sizes = Field(description="How large objects are")
    operations: Operations = Field(description="What is done, with weights")
    closed: Closed | None = Field(default=None, description="A fixed number of clients")
    open: Open | None = Field(default=None, description="Instead: a fixed rate of requests")
    warm_up_s: Seconds = Field(default=5.0, description="Time of each step before anything counts")
    duration_s: Seconds | None = Field(default=None, description="Time of each step that counts")
    count: Annotated[int, Field(ge=1, le=10**12)] | None = Field(
        default=None, description="Instead: operations of each step that count"
    )
    timeout_s: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=60.0, description="An operation that takes longer has failed"
    )
    page: Annotated[int, Field(ge=1, le=10_000)] = Field(default=1000, description="Names in a page of a listing")
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] = Field(default=1, description="Everything random follows from it")
    verify: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=1.0,
        description="Share of reads whose bytes are compared with what was written; of the others, the size is. Over "
        "TLS and with direct access all are compared, unless it is 0",
    )
    threads: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Threads of the generator, for stores that are faster than one"
    )

    @model_validator(mode="after")
    def _check(self) -> Scenario:
        if (self.closed is None) == (self.open is None):
            raise ValueError("needs either closed or open")
        if (self.duration_s is None) == (self.count is None):
            raise ValueError("needs either duration_s or count")
        if self.duration_s == 0:
            raise ValueError("duration_s must be above 0")
        weights = dict(self.operations.weights())
        if self.objects == 0 and not weights["create"] and any(weights[name] for name in _OF_OBJECTS):
            raise ValueError("objects must be above 0 where operations read, update, delete or head, but don't create")
        return self

    def document(self) -> dict[str, Any]:
        """Return it as plain data, with defaults."""
        return self.model_dump(mode="json")


_OF_OBJECTS = ("read", "update", "delete", "head")
