"""Databases as a kind of replicas that rounds compare: asks container servers what sessions want to know.

Fault model: that of `swiftlet.sync.databases.exchange`. A database that a server does not take, or can't read, does not
stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from prometheus_client import Counter

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.model import Entry, ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.databases.entries import RINGS, database_of, fingerprint_of, kind_of
from swiftlet.sync.databases.exchange import Exchange, Outcome
from swiftlet.sync.databases.patience import Patience, Word
from swiftlet.sync.databases.transfer_rules import DatabaseTransferRules
from swiftlet.sync.moving.replica_kind import Moved, ReplicaKind
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.session.compare import Push
from swiftlet.sync.session.effects import expect
from swiftlet.sync.session.messages import UNKNOWN_RING, AskSuffixes, Suffixes, decode_reply, encode

DATABASES = Counter(
    "swiftlet_replicator_databases_total",
    "Databases that were brought together with a peer's, or not, by what came of it.",
    ["result"],
)


class LeftAlone(NotFound):
    """A database is not worked on in this round, which is not a failure."""


class Overdue(Unavailable):
    """A database differs, and could not be worked on for so long that it counts as not in order."""


class DatabaseTransport:
    """`SyncTransport` to container servers; policies are those of `swiftlet.sync.databases.entries`."""

    def __init__(self, transport: ListingSyncTransport) -> None:
        """`transport` reaches the container servers; its owner closes it."""
        self._transport = transport

    async def policies(self, device: Device) -> list[int]:
        """Return the policies: every server has both rings of databases."""
        await self._transport.knock(device)
        return list(RINGS)

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Return the partitions of which the device has a database."""
        return list(await self._transport.held_partitions(device, kind_of(policy)))

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix."""
        question = encode(AskSuffixes(policy, UNKNOWN_RING, (partition,)))
        reply = expect(decode_reply(await self._transport.ask_sync(device, question)), Suffixes)
        return reply.found[0].hashes if reply.found else {}

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a session."""
        return await self._transport.ask_sync(device, message)

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Remove a handoff copy if it still is as the entry says."""
        return await self._transport.forget_database(device, database_of(key), fingerprint_of(entry))


class _Carrier:
    """Exchanges databases for rounds."""

    def __init__(self, transport: ListingSyncTransport, patience: Patience) -> None:
        self._transport = transport
        self._patience = patience

    async def carry(
        self, own: DevicePartitions, source: Device, target: Device, key: ObjectKey, push: Push, moved: Moved
    ) -> int:
        """Behaves as `swiftlet.sync.moving.replica_kind.Carry` requires."""
        peer = target if source is own.device else source
        id, handoffs = database_of(key), key.partition not in own.places.assigned
        if not handoffs and not push.fresh:
            self._wait(self._patience.judge(own, peer.id, id, fingerprint_of(push.entry)), str(id))
        exchange = Exchange(self._transport, own.device, peer, id, one_way=handoffs)
        began = time.monotonic()
        try:
            outcome = await exchange.run()
        except NotFound:
            raise
        except SwiftletError:
            DATABASES.labels("failed").inc()
            self._patience.worked(own, peer.id, id, time.monotonic() - began, agreed=False)
            raise
        DATABASES.labels(outcome.value).inc()
        self._patience.worked(own, peer.id, id, time.monotonic() - began, agreed=True)
        if outcome is Outcome.LATER or (outcome is Outcome.FORGOTTEN and not handoffs):
            raise LeftAlone(f"{id}: {outcome.value}")
        await moved(exchange.moved_bytes)
        return exchange.moved_bytes

    @staticmethod
    def _wait(word: Word, what: str) -> None:
        if word is Word.GO:
            return
        DATABASES.labels(word.value).inc()
        if word is Word.WAIT:
            raise LeftAlone(f"{what} is in use")
        raise Overdue(f"{what} differs and has been in use for too long")


def database_replicas(transport: ListingSyncTransport, patience: Patience | None = None) -> ReplicaKind:
    """Return the kind of replicas that are databases, reached over `transport`."""
    patience = patience or Patience()
    return ReplicaKind(
        DatabaseTransport(transport), _Carrier(transport, patience).carry, DatabaseTransferRules(), patience.begin
    )
