"""The spec of a StoragePolicy, which has its own replicas and pools; each container has one policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swiftlet.crd.base import NamedRef, PoolName, Quantity, Replicas, View
from swiftlet.quantities import quantity_bytes
from swiftlet.ring.model import Coding, WriteQuorum


class ErasureCodingSpec(View):
    """How many fragments an object has, each on a device of its own, and which of them are enough."""

    data: Annotated[int, Field(ge=2, le=16)]
    parity: Annotated[int, Field(ge=1, le=8)]
    cell_size: Quantity = "64Ki"
    pack_below: Quantity = "0"

    @property
    def coding(self) -> Coding:
        """The same as a value."""
        return Coding(self.data, self.parity, quantity_bytes(self.cell_size))


class StoragePolicySpec(View):
    """One storage policy of a cluster."""

    cluster_ref: NamedRef
    index: Annotated[int, Field(ge=0, le=255)]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$", max_length=64)]
    default: bool = False
    deprecated: bool = False
    replicas: Replicas | None = None
    erasure_coding: ErasureCodingSpec | None = None
    aggregate_below: Quantity = "1Mi"
    etag: Literal["md5", "xxh3"] = "md5"
    write_quorum: WriteQuorum = "majority"
    pools: Annotated[tuple[PoolName, ...], Field(max_length=32)] = ()

    @property
    def aggregate_below_bytes(self) -> int:
        """The size in bytes up to which objects share volume files."""
        return quantity_bytes(self.aggregate_below)

    @property
    def pack_below_bytes(self) -> int:
        """The size in bytes up to which objects with erasure coding are kept as copies."""
        return 0 if self.erasure_coding is None else quantity_bytes(self.erasure_coding.pack_below)

    @property
    def coding(self) -> Coding | None:
        """The erasure coding; None of a policy with copies."""
        return None if self.erasure_coding is None else self.erasure_coding.coding
