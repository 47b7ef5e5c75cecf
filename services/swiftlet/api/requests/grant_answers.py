"""What grants by one decision have in common: the answers to them, of which there may be thousands a second, differ in
their signatures, sessions and times alone.

It is made once for a decision, which is remembered for a moment, and anew when the cluster's keys, its certificates or
a ring have changed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass

from swiftlet.api.context.core import Facts
from swiftlet.api.requests.grant_decisions import Decision
from swiftlet.api.requests.grant_forms import Asked
from swiftlet.names import HashPath, Path
from swiftlet.placement.rings import Rings
from swiftlet.ring.lookup import Ring

_MAX_REMEMBERED = 1024
"""Decisions of which this is remembered; the oldest goes first."""


@dataclass(frozen=True, slots=True)
class Common:
    """What all grants by one decision have in common, until a ring changes."""

    decision: Decision
    ring: Ring
    containers: Ring
    authorities: tuple[str, ...]
    operations: list[str]
    """The operations that are granted, sorted."""
    replicas: int
    """How many replicas the container's database has."""
    text: str
    """The end of an answer in JSON, from the comma behind its other fields on."""

    def rests_on(self, ring: Ring, containers: Ring, authorities: tuple[str, ...]) -> bool:
        """Return whether it was made by these."""
        return self.ring is ring and self.containers is containers and self.authorities == authorities

    @property
    def policy(self) -> tuple[int, int]:
        """The storage policy's index, and its part power."""
        return self.decision.container.policy, self.ring.part_power


class Commons:
    """Makes and remembers what grants have in common, for one process."""

    def __init__(self, facts: Facts, rings: Rings, hash_path: HashPath, native_port_offset: int) -> None:
        """Take what answers tell of the cluster from here."""
        self._options = facts.options
        self._rings = rings
        self._hash_path = hash_path
        self._native_port_offset = native_port_offset
        self._made: dict[int, Common] = {}

    def of(self, decision: Decision, asked: Asked, authorities: tuple[str, ...]) -> Common:
        """Return what grants by this decision, for this container and these operations, have in common."""
        ring, containers = self._rings.objects(decision.container.policy), self._rings.container()
        # It holds the decision, so that no other one has its id meanwhile.
        known = self._made.get(id(decision))
        if known is not None and known.rests_on(ring, containers, authorities):
            return known
        made = self._make(decision, asked, ring, containers, authorities)
        self._made.pop(id(decision), None)
        while len(self._made) >= _MAX_REMEMBERED:
            del self._made[next(iter(self._made))]
        self._made[id(decision)] = made
        return made

    def _make(
        self, decision: Decision, asked: Asked, ring: Ring, containers: Ring, authorities: tuple[str, ...]
    ) -> Common:
        index = decision.container.policy
        known = self._options.policies.at(index)
        partition = containers.partition_of(self._hash_path.of(Path(asked.account, asked.container)))
        replicas = len(containers.primaries(partition))
        operations = sorted(asked.operations)
        fields = {
            "operations": operations,
            "policy": {"index": index, "name": known.name if known is not None else None},
            "etag": self._options.etag_kind(index),
            "write_quorum": self._options.policies.write_quorum(index),
            "container_replicas": replicas,
            "ring_version": ring.version,
            "hash_path": {
                "prefix": b64encode(self._hash_path.prefix).decode(),
                "suffix": b64encode(self._hash_path.suffix).decode(),
            },
            "native_port_offset": self._native_port_offset,
            "authorities": authorities,
        }
        return Common(decision, ring, containers, authorities, operations, replicas, f", {json.dumps(fields)[1:]}")
