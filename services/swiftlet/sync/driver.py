"""Sessions over the object transport: one question finds out for thousands of partitions what is equal at a peer.

A proof that both sides held the same is as good as the comparison of all suffix hashes, from which a round would go on
to do nothing. What is not proved is compared partition by partition (`swiftlet.sync.partition`), which moves objects.
Both sides are asked the same way, the own device as well: hashes are made where the objects are.

Fault model: a peer may be away, break off, answer garbage, or be of a version that knows no such questions. That proves
nothing, and its partitions are compared the other way. Memory: one batch of roots for each session under way, and one
number for each partition and peer that was proved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog
from prometheus_client import Counter

from swiftlet.errors import NodeTimeout, NodeUnreachable, SwiftletError
from swiftlet.peers import ObjectTransport
from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.session.effects import Ask, Effect, Proved, ReadRoots, Terms, expect
from swiftlet.sync.session.messages import Compare, Equal, Reply, Request, Roots, decode_reply, encode
from swiftlet.sync.session.neighbour import proof_session
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.sync.share import Share
from swiftlet.transport.wire import WireError

SESSIONS = Counter("swiftlet_replicator_sessions_total", "Sessions with a peer about many partitions.", ["result"])
PROVED = Counter("swiftlet_replicator_proved_total", "Partitions that a session proved to be equal at a peer.")

_NOT_A_HASH = b"\xff" * 16
"""Compared with this, a device answers with its roots."""
_log = structlog.get_logger("replicator")


class Prover:
    """Runs the sessions of rounds."""

    def __init__(
        self, transport: ObjectTransport, neighbours: Neighbours, pace: Pace, now_s: Callable[[], float]
    ) -> None:
        """`now_s` is the wall clock."""
        self._transport = transport
        self._neighbours = neighbours
        self._now_s = now_s
        self._pace = pace
        self._slots = asyncio.Semaphore(pace.concurrency)

    async def prove(
        self, share: Share, partitions: Iterable[int], only_with: Callable[[Device], bool] | None = None
    ) -> None:
        """Compare these partitions, of which the device is a primary, with their peers, or those `only_with` picks.

        What is equal is noted in the share. Returns also where that failed.
        """
        by_peer: dict[int, tuple[Device, list[int]]] = {}
        for partition in partitions:
            for peer in share.peers(partition)[0]:
                if only_with is None or only_with(peer):
                    by_peer.setdefault(peer.id, (peer, []))[1].append(partition)
        await asyncio.gather(*(self._session(share, peer, asked) for peer, asked in by_peer.values()))

    async def _session(self, share: Share, peer: Device, partitions: Sequence[int]) -> None:
        async with self._slots:
            if self._neighbours.skips(node_of(peer)):
                return
            terms = Terms(share.policy, share.ring.version)
            session = proof_session(terms, peer.id, sorted(partitions))
            began_s = self._now_s()
            effect = session.resume(None, began_s)
            while effect is not None:
                if isinstance(effect, ReadRoots):
                    began_s = self._now_s()
                try:
                    observation = await self._do(share, peer, effect, began_s)
                except SwiftletError as error:
                    effect = session.fail(error, self._now_s())
                else:
                    effect = session.resume(observation, self._now_s())
            SESSIONS.labels("failed" if session.error else "ok").inc()
            if session.error:
                _log.info("peer is compared partition by partition", peer=peer.name, reason=str(session.error))

    async def _do(self, share: Share, peer: Device, effect: Effect, began_s: float) -> object:
        if isinstance(effect, ReadRoots):
            roots = await self._roots(share, effect.partitions)
            pairs = zip(effect.partitions, roots, strict=True)
            share.empty.update(p for p, root in pairs if root == EMPTY_ROOT and p not in share.bare)
            return roots
        if isinstance(effect, Ask):
            return await self._ask_peer(peer, effect.request)
        if isinstance(effect, Proved):
            share.proved.setdefault(peer.id, {}).update(dict.fromkeys(effect.partitions, began_s))
            PROVED.inc(len(effect.partitions))
            return None
        raise TypeError(f"{type(effect).__name__} is nothing that a proof needs")

    async def _roots(self, share: Share, partitions: tuple[int, ...]) -> list[bytes]:
        """The own device's roots."""
        request = Compare(share.policy, share.ring.version, partitions, _NOT_A_HASH)
        reply = await self._ask(share.device, request)
        if isinstance(reply, Equal):
            raise WireError("hashes are equal to what is no hash")
        roots = expect(reply, Roots).roots
        if len(roots) != len(partitions):
            raise WireError(f"{len(roots)} roots for {len(partitions)} partitions")
        return list(roots)

    async def _ask_peer(self, peer: Device, request: Request) -> Reply:
        began = time.monotonic()
        try:
            reply = await self._ask(peer, request)
        except (NodeUnreachable, NodeTimeout):
            self._neighbours.failed(node_of(peer))
            raise
        self._pace.answered(time.monotonic() - began)
        self._neighbours.succeeded(node_of(peer))
        return reply

    async def _ask(self, device: Device, request: Request) -> Reply:
        return decode_reply(await self._transport.ask(device, encode(request)))
