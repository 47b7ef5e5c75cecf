"""Container servers that know no questions of sessions, seen as if they did, by the requests that they know.

Such a server lists the databases it has, and says which of those that somebody names it holds with another
fingerprint. So what it holds is known as far as it is what is held here; everything else has a fingerprint that
nobody has, and is brought together. A database that is not here can't be fetched from it: it counts as lacking until
the server brings it in its own rounds.

Fault model: as any request's. What is seen is kept for one round (`forget`): a difference that is none any more costs
an exchange that finds nothing, and what was equal was so when the round began, which is what a round's end says.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from swiftlet.model import DatabaseId, DatabaseKind, Entry
from swiftlet.ring.model import Device
from swiftlet.sync.databases.entries import POLICIES, entry_of, fingerprint_of
from swiftlet.sync.session.effects import expect
from swiftlet.sync.session.messages import (
    MAX_PARTITIONS,
    MAX_WANTED,
    UNKNOWN_RING,
    AskManyEntries,
    AskSuffixes,
    ManyEntries,
    Suffixes,
    Wanted,
    decode_reply,
    encode,
)
from swiftlet.transport.listing_sync import ListingSyncTransport
from swiftlet.transport.wire import WireError

MAX_ASKED = 2000
"""Databases in one question to a peer."""

Seen = Mapping[int, Sequence[Entry]]
"""By partition."""


class OlderServers:
    """What such servers hold, as far as it can be seen from this replicator's own devices."""

    def __init__(self, transport: ListingSyncTransport, own: Callable[[DatabaseKind], Sequence[Device]]) -> None:
        """`own` are the devices of a kind's ring that this replicator works for."""
        self._transport = transport
        self._own = own
        self._seen: dict[tuple[str, DatabaseKind], Seen] = {}
        self._held: dict[tuple[str, DatabaseKind], Mapping[DatabaseId, bytes]] = {}
        self._unknown = secrets.token_bytes(16)

    def forget(self) -> None:
        """Look again from now on."""
        self._seen, self._held = {}, {}

    async def entries(self, device: Device, kind: DatabaseKind) -> Seen:
        """What a device holds; NodeError."""
        key = (device.address, kind)
        if key not in self._seen:
            self._seen[key] = await self._look(device, kind)
        return self._seen[key]

    async def _look(self, device: Device, kind: DatabaseKind) -> Seen:
        there: dict[DatabaseId, bytes] = dict.fromkeys(await self._listed(device, kind), self._unknown)
        for own in self._own(kind):
            here = await self._own_databases(own, kind)
            both = [id for id in there if id in here]
            for start in range(0, len(both), MAX_ASKED):
                asked = both[start : start + MAX_ASKED]
                differing = set(await self._transport.differing(device, [(id, here[id]) for id in asked]))
                there.update((id, here[id]) for id in asked if id not in differing)
        seen: dict[int, list[Entry]] = {}
        for id, fingerprint in there.items():
            seen.setdefault(id.partition, []).append(entry_of(id.digest, fingerprint))
        return seen

    async def _listed(self, device: Device, kind: DatabaseKind) -> list[DatabaseId]:
        listed: list[DatabaseId] = []
        more = True
        while more:
            page, more = await self._transport.databases(device, kind, listed[-1] if listed else None)
            listed += page
        return listed

    async def _own_databases(self, own: Device, kind: DatabaseKind) -> Mapping[DatabaseId, bytes]:
        key = (own.address, kind)
        if key not in self._held:
            self._held[key] = {
                DatabaseId(kind, partition, entry.digest): fingerprint_of(entry)
                for partition, entries in (await own_entries(self._transport, own, kind)).items()
                for entry in entries
            }
        return self._held[key]


async def own_entries(transport: ListingSyncTransport, device: Device, kind: DatabaseKind) -> Seen:
    """All that a device holds whose server knows sessions, by their questions."""
    policy = POLICIES[kind]
    partitions = await transport.held_partitions(device, kind)
    wanted: list[Wanted] = []
    while partitions:
        question = AskSuffixes(policy, UNKNOWN_RING, tuple(partitions[:MAX_PARTITIONS]))
        reply = expect(decode_reply(await transport.ask_sync(device, encode(question))), Suffixes)
        if not reply.found:
            raise WireError(f"{device.address} says nothing of its suffixes")
        wanted += [Wanted(found.partition, tuple(sorted(found.hashes))) for found in reply.found if found.hashes]
        partitions = partitions[len(reply.found) :]
    seen: dict[int, Sequence[Entry]] = {}
    while wanted:
        batch = _fitting(wanted)
        question_of_many = AskManyEntries(policy, UNKNOWN_RING, batch)
        many = expect(decode_reply(await transport.ask_sync(device, encode(question_of_many))), ManyEntries)
        if not many.found:
            raise WireError(f"{device.address} holds more of a partition than a message can")
        seen.update((found.partition, found.entries) for found in many.found)
        wanted = wanted[len(many.found) :]
    return seen


def _fitting(wanted: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """The first ones, as many as one question may have."""
    left, count = MAX_WANTED, 0
    for one in wanted[:MAX_PARTITIONS]:
        left -= len(one.suffixes)
        if left < 0:
            break
        count += 1
    return tuple(wanted[: max(1, count)])
