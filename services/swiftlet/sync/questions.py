"""Questions of sessions, to peers and to the own device, and the answers in terms that the machines understand.

Servers of earlier versions are asked by the requests that they know (`swiftlet.sync.older`), and count as primaries
where the own ring says so, as they can't say it themselves: a cluster is upgraded node by node, and stays in sync.

Fault model: a device may be away, answer garbage or not know the question. Garbage is treated as not knowing: a server
that is broken fails at the other requests as well.
"""

from __future__ import annotations

from dataclasses import replace

import structlog
from prometheus_client import Counter

from swiftlet.errors import NodeBusy, NodeError, NodeTimeout, NodeUnreachable
from swiftlet.peers import SyncTransport
from swiftlet.ring.model import Device
from swiftlet.sync.older import answer_for
from swiftlet.sync.session.answers import in_runs
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

OLDER = Counter(
    "swiftlet_replicator_older_servers_total",
    "Servers of devices that in a round did not know the questions of sessions, or not their ring.",
    ["lacks"],
)

_log = structlog.get_logger("replicator")


class Questions:
    """Those of one round."""

    def __init__(self, transport: SyncTransport) -> None:
        """Nobody is known to be of an earlier version."""
        self._transport = transport
        self._older: set[str] = set()
        self._without_ring: set[str] = set()

    async def ask(self, device: Device, request: Request) -> Reply:
        """The answer; NodeError."""
        if device.address not in self._older:
            data = encode(request)
            try:
                return self._own_words(device, in_runs(await self._transport.ask(device, data)))
            except (NodeUnreachable, NodeTimeout, NodeBusy):
                raise
            except (NodeError, WireError) as error:
                reason = str(error)
        else:
            reason = ""
        reply = await answer_for(self._transport, device, request)
        if reason:
            self._older.add(device.address)
            OLDER.labels("questions").inc()
            _log.info("device is asked as in the version before", device=device.name, reason=reason)
        return _by_own_ring(reply)

    def _own_words(self, device: Device, reply: Reply) -> Reply:
        if reply.ring_version != UNKNOWN_RING:
            return reply
        if device.address not in self._without_ring:
            self._without_ring.add(device.address)
            OLDER.labels("rings").inc()
        return _by_own_ring(reply)


def _by_own_ring(reply: Reply) -> Reply:
    """The reply of a server that can't say what it is a primary of: those who ask it take it for one."""
    if isinstance(reply, Suffixes):
        return replace(reply, found=tuple(replace(one, primary=True) for one in reply.found))
    if isinstance(reply, ManyEntries):
        return replace(reply, found=tuple(replace(one, primary=True) for one in reply.found))
    return replace(reply, primary=True) if isinstance(reply, Entries) else reply
