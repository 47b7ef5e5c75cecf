"""Sends the questions of sessions to peers and to the own device, and decodes their answers.

A server that has no ring of the policy yet, or whose ring does not have the device, can't say of what it is a primary.
It counts as a primary where the ring of the asking side says so.

Fault model: a device may be away, or answer garbage. Both are NodeErrors that end the session. Garbage is also counted
and logged: it is a fault of a program, which no repair of the network mends.
"""

from __future__ import annotations

from dataclasses import replace

import structlog
from prometheus_client import Counter

from swiftlet.boundaries.objects import SyncTransport
from swiftlet.errors import NodeError
from swiftlet.ring.model import Device
from swiftlet.sync.session.answers import decode_packed
from swiftlet.sync.session.messages import (
    UNKNOWN_RING,
    Entries,
    ManyEntries,
    Reply,
    Request,
    Suffixes,
    encode,
)
from swiftlet.transport.wire import WireError

GARBLED = Counter(
    "swiftlet_replicator_garbled_answers_total",
    "Answers to questions of sessions that could not be decoded: the peer runs another version, or is damaged.",
)

_log = structlog.get_logger("replicator")


class Questions:
    """Asks devices over a transport."""

    def __init__(self, transport: SyncTransport) -> None:
        """`transport` reaches the devices that are asked."""
        self._transport = transport

    async def ask(self, device: Device, request: Request) -> Reply:
        """Return the device's answer. Raises NodeError, also for an answer that can't be decoded."""
        answer = await self._transport.ask(device, encode(request))
        try:
            reply = decode_packed(answer)
        except WireError as error:
            GARBLED.inc()
            _log.warning("the answer of a peer can't be decoded", device=device.name, error=str(error))
            raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error
        return _by_own_ring(reply) if reply.ring_version == UNKNOWN_RING else reply


def _by_own_ring(reply: Reply) -> Reply:
    """Return a reply in which primaries are those of the asking side's ring, if the server has no ring to
    tell them by.
    """
    if isinstance(reply, Suffixes):
        return replace(reply, found=tuple(replace(one, primary=True) for one in reply.found))
    if isinstance(reply, ManyEntries):
        return replace(reply, found=tuple(replace(one, primary=True) for one in reply.found))
    return replace(reply, primary=True) if isinstance(reply, Entries) else reply
