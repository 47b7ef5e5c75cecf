"""The file of a workload: what is stored and asked, and the hardware there is. Wrong ones are refused by field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from swiftlet.advice.errors import AdviceError
from swiftlet.advice.hardware import Disk, Hardware, Node
from swiftlet.advice.load import Load
from swiftlet.advice.plan import Coding, Rules
from swiftlet.advice.sizes import of_pieces
from swiftlet.advice.sizing import MAX_DISKS
from swiftlet.bench.scenario import Part
from swiftlet.bench.scenario import Sizes as SizesPart
from swiftlet.crd.base import ObjectName, Zone
from swiftlet.documents import read_document
from swiftlet.settings.problems import Source, describe
from swiftlet.units import parse_size

MAX_FILE_BYTES = 1 << 20
"""Bytes of a workload file."""
MAX_KINDS = 8
"""Kinds of disks, and of nodes."""
MAX_AMOUNT = 10**18
"""Bytes that are stored, and bytes per second."""
MAX_CONTAINERS = 10**9
"""Containers of a workload."""
MAX_RATE = 1_000_000_000
"""Operations of a kind that may be asked per second."""
MAX_PRICE = 1_000_000_000_000
"""The price of a node or a disk."""

Amount = Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=MAX_AMOUNT)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, le=MAX_PRICE, allow_inf_nan=False)]
Name = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=30)]


class Rates(Part):
    """Operations per second at the busiest time."""

    create: Rate = Field(default=0, description="PUT of a new object")
    read: Rate = Field(default=0, description="GET of an object")
    update: Rate = Field(default=0, description="PUT over an object that there is")
    delete: Rate = Field(default=0, description="DELETE of an object")
    head: Rate = Field(default=0, description="HEAD of an object")
    list: Rate = Field(default=0, description="GET of a page of a container's listing")


class DiskPart(Part):
    """A kind of disk, as volumes of one StorageClass."""

    name: Name = Field(description="By which nodes and databases name it")
    storage_class: ObjectName | None = Field(
        default=None, description="StorageClass of its volumes. Not set, the default"
    )
    size: Amount = Field(description="Bytes of one disk")
    read_bytes_per_s: Amount = Field(description="Bytes read in sequence, per second")
    write_bytes_per_s: Amount = Field(description="Bytes written in sequence, per second")
    reads_per_s: Annotated[float, Field(gt=0, le=MAX_RATE)] = Field(
        description="Random reads of 4 KiB per second, many at a time"
    )
    sync_s: Annotated[float, Field(ge=0, le=60)] = Field(description="Time until a small write is durable")
    price: Price | None = Field(default=None, description="Of one disk")

    def value(self) -> Disk:
        """Return it as advice takes it."""
        return Disk(
            name=self.name,
            size_bytes=self.size,
            read_bytes_per_s=self.read_bytes_per_s,
            write_bytes_per_s=self.write_bytes_per_s,
            reads_per_s=self.reads_per_s,
            sync_s=self.sync_s,
            class_name=self.storage_class,
            price=self.price,
        )


class NodePart(Part):
    """A kind of machine."""

    name: Name = Field(description="What you call it")
    processors: Annotated[float, Field(ge=1, le=4096)] = Field(description="Processors that Kubernetes sees")
    memory: Amount = Field(description="Bytes of memory")
    network_bytes_per_s: Amount = Field(description="Bytes per second in each direction")
    disk: Name | None = Field(default=None, description="Kind of its disks. Not set, it stores no objects")
    disks: Annotated[int, Field(ge=0, le=MAX_DISKS)] = Field(default=0, description="Disks that it has room for")
    price: Price | None = Field(default=None, description="Of one, without disks")
    labels: Annotated[Mapping[str, str], Field(max_length=16)] = Field(
        default={}, description="Labels by which pods find it (nodeSelector)"
    )

    @model_validator(mode="after")
    def _check(self) -> NodePart:
        if (self.disk is None) != (self.disks == 0):
            raise ValueError("disk and disks go together: which kind, and for how many there is room")
        return self


class HardwarePart(Part):
    """What there is to build a store of."""

    disks: Annotated[tuple[DiskPart, ...], Field(min_length=1, max_length=MAX_KINDS)] = Field(
        description="Kinds of disks"
    )
    nodes: Annotated[tuple[NodePart, ...], Field(min_length=1, max_length=MAX_KINDS)] = Field(
        description="Kinds of machines"
    )
    databases: Annotated[tuple[Name, ...], Field(max_length=MAX_KINDS)] = Field(
        default=(), description="Kinds of disks for container servers. Not set, any"
    )
    zones: Annotated[tuple[Zone, ...], Field(max_length=16)] = Field(default=(), description="Zones of the Kubernetes")
    balancer_bytes_per_s: Amount | None = Field(default=None, description="Bytes per second that clients' way in takes")
    speed: Annotated[float, Field(gt=0, le=100)] = Field(
        default=1.0, description="Of a processor, compared with that of the unit costs"
    )

    @model_validator(mode="after")
    def _check(self) -> HardwarePart:
        for field, names in (("disks", [one.name for one in self.disks]), ("nodes", [one.name for one in self.nodes])):
            if len(set(names)) < len(names):
                raise ValueError(f"{field}: a name is given twice")
        if len(set(self.zones)) < len(self.zones):
            raise ValueError("zones: a zone is given twice")
        known = [one.name for one in self.disks]
        wanted = [(f"nodes[{number}].disk", one.disk) for number, one in enumerate(self.nodes)]
        wanted += [(f"databases[{number}]", name) for number, name in enumerate(self.databases)]
        for field, name in wanted:
            if name is not None and name not in known:
                raise ValueError(f"{field}: {name!r} is none of the disks: {', '.join(known)}")
        if not any(one.disks for one in self.nodes):
            raise ValueError("nodes: none of them has disks; give disk and disks to one")
        return self

    def value(self) -> Hardware:
        """Return it as advice takes it."""
        disks = {one.name: one.value() for one in self.disks}
        nodes = [
            Node(
                name=one.name,
                processors=one.processors,
                memory_bytes=one.memory,
                network_bytes_per_s=one.network_bytes_per_s,
                disk=disks[one.disk] if one.disk is not None else None,
                most_disks=one.disks,
                price=one.price,
                labels=one.labels,
            )
            for one in self.nodes
        ]
        tables = self.databases or tuple(disks)
        return Hardware(
            nodes=tuple(nodes),
            database_disks=tuple(disks[name] for name in tables),
            zones=self.zones,
            balancer_bytes_per_s=self.balancer_bytes_per_s,
            speed=self.speed,
        )


class CodingPart(Part):
    """An erasure coding, in place of copies."""

    data: Annotated[int, Field(ge=2, le=16)] = Field(description="Fragments that an object is cut into")
    parity: Annotated[int, Field(ge=1, le=8)] = Field(description="Fragments that may be lost")


class Workload(Part):
    """What a store has to hold and to do, and what it can be built of."""

    title: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="What it is, in a line")
    stored: Amount = Field(description="Bytes of all objects, before replicas")
    growth: Annotated[float, Field(ge=1, le=10_000)] = Field(
        default=4.0, description="How many times as much there will be at the end of the store's life"
    )
    containers: Annotated[int, Field(ge=1, le=MAX_CONTAINERS)] = Field(default=1, description="Containers in use")
    sizes: SizesPart | None = Field(default=None, description="How large objects are, as in scenarios")
    per_second: Rates | None = Field(default=None, description="What is asked at the busiest time")
    cached: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Share of reads that object servers find in memory"
    )
    replicas: Annotated[int, Field(ge=1, le=32)] = Field(default=3, description="Copies of each object and listing")
    erasure_coding: CodingPart | None = Field(
        default=None, description="Keep objects in fragments; then `replicas` are copies of listings"
    )
    busy: Annotated[float, Field(ge=0.05, le=0.95)] = Field(
        default=0.7, description="Share of time that anything may be busy, with one node away"
    )
    full: Annotated[float, Field(ge=0.05, le=0.9)] = Field(default=0.8, description="Share of space that may be in use")
    md5: bool = Field(default=True, description="Whether ETags have to be MD5, as clients of OpenStack Swift expect")
    outside: bool = Field(default=False, description="Whether clients are outside of Kubernetes")
    aggregate_below: Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=4 << 20)] = Field(
        default=1 << 20, description="Objects up to this size share volume files"
    )
    hardware: HardwarePart | None = Field(default=None, description="What there is to build it of")

    @model_validator(mode="after")
    def _check(self) -> Workload:
        if self.sizes is not None:
            mean = of_pieces(self.sizes.pieces()).mean
            if mean < 1:
                raise ValueError("sizes: all objects are empty")
            if self.stored < mean:
                raise ValueError(f"stored: {self.stored:,} bytes are less than one object of sizes")
        return self

    def rules(self) -> Rules:
        """Return how the store is to be sized."""
        return Rules(
            replicas=self.replicas,
            coding=None
            if self.erasure_coding is None
            else Coding(self.erasure_coding.data, self.erasure_coding.parity),
            busy=self.busy,
            full=self.full,
            aggregate_below=self.aggregate_below,
            etag=self.etag,
            is_outside=self.outside,
        )

    @property
    def etag(self) -> Literal["md5", "xxh3"]:
        """Return the hash of ETags."""
        return "md5" if self.md5 else "xxh3"

    def load(self, seen: Load | None = None, times: float = 1.0) -> Load:
        """Return what is asked; what was seen of sizes and rates takes the place of the file's.

        AdviceError when both have none.
        """
        if seen is not None:
            rates, sizes, read_sizes = dict(seen.per_second), seen.sizes, seen.read_sizes
        else:
            for field in ("sizes", "per_second"):
                if getattr(self, field) is None:
                    raise AdviceError(f"{field}: missing; give it in the workload, or a result (--run), or --metrics")
            assert self.sizes is not None
            assert self.per_second is not None
            rates, sizes = self.per_second.model_dump(), of_pieces(self.sizes.pieces())
            read_sizes = sizes
        return Load(
            per_second={name: rate * times for name, rate in rates.items()},
            sizes=sizes,
            read_sizes=read_sizes,
            stored_bytes=float(self.stored),
            containers=self.containers,
            cached=self.cached,
            growth=self.growth,
        )

    def store_of(self) -> Hardware:
        """Return what there is to build the store of. AdviceError when nothing is said of it."""
        if self.hardware is None:
            raise AdviceError("hardware: missing; give it in the workload, or in a file of its own (--hardware)")
        return self.hardware.value()


def read_workload(path: Path, hardware: Path | None = None) -> Workload:
    """Return the workload in a file, with the hardware of another one. AdviceError with everything that is wrong."""
    document = _document(path)
    source = Source(str(path))
    if hardware is not None:
        document = {**document, "hardware": _document(hardware)}
        source.note(("hardware",), str(hardware))
    return _parsed(Workload, document, source)


def _parsed(model: type[Workload], document: Any, source: Source) -> Workload:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = [problem.removeprefix(": ") for problem in describe(error, model, source)]
        raise AdviceError("the workload can't be used:\n  " + "\n  ".join(problems)) from error


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise AdviceError(f"{path} is too large: it may have {MAX_FILE_BYTES:,} bytes")
        document = read_document(path.read_text("utf-8"))
    except (OSError, UnicodeError) as error:
        raise AdviceError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise AdviceError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise AdviceError(f"{path} must hold fields such as `title:` and `stored:`; `swiftlet advise --schema` has all")
    return document
