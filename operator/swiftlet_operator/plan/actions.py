"""The actions that a plan consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from swiftlet.crd import Fact
from swiftlet_operator.manifests import Kind, Manifest


class Fresh(Protocol):
    """Makes new secrets, and hashes of them."""

    def token(self) -> str:
        """Return 32 random bytes as text."""
        ...

    def hashed(self, secret: str, old: str | None) -> str:
        """Return the hash of a secret for the users file; the old hash as long as it matches."""
        ...


@dataclass(frozen=True, slots=True)
class Patch:
    """A change merged into a live object."""

    kind: Kind
    name: str
    change: Manifest


@dataclass(frozen=True, slots=True)
class StatusOf:
    """What is known about one of our objects now: facts for its conditions, and other fields of its status."""

    kind: Kind
    name: str
    generation: int
    facts: tuple[Fact, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person should see in `kubectl describe`."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Actions:
    """All that is to be done, in this order.

    `first` is made when absent; when that fails nothing else is done. `guard` has changes without which what follows
    might be lost; after a failure of one nothing else is done either. `create` is made when absent and never
    overwritten. `apply` has chains of manifests; the first failure ends its chain, other chains go on. `delete` has
    live objects, `force` live pods that are ended at once, without waiting for their node. `release` says whether the
    finalizer is removed, after everything else.
    """

    first: tuple[Manifest, ...] = ()
    guard: tuple[Patch, ...] = ()
    create: tuple[Manifest, ...] = ()
    apply: tuple[tuple[Manifest, ...], ...] = ()
    patch: tuple[Patch, ...] = ()
    delete: tuple[Manifest, ...] = ()
    force: tuple[Manifest, ...] = ()
    status: tuple[StatusOf, ...] = ()
    events: tuple[Event, ...] = ()
    release: bool = False
    again_in_s: float | None = None
