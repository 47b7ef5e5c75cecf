"""What the direct way has in one event loop: grants, rings, connections, and what it knows of devices and of time.

Fault model: this machine's clock may be wrong. Versions get their times by the clock of the metadata server that gave
the last grant, and by an object server's when that differs from it; object servers bound them anyway.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from swiftlet.client.direct.errors import GoByHttp
from swiftlet.client.direct.grants import Granted, Grants, Kind
from swiftlet.client.direct.guest import GuestCaller, GuestCalls
from swiftlet.client.direct.hashing import Hashing
from swiftlet.client.direct.large_stream import Ahead
from swiftlet.client.direct.metadata import MetadataServer
from swiftlet.client.direct.missed import MissedOfObject, Reports
from swiftlet.client.direct.outage import Outage
from swiftlet.client.direct.owed import Behind, RowsOfDevices
from swiftlet.client.direct.rings import DirectRings
from swiftlet.client.errors import ClientError, ConfigurationError, ConnectionFailed, ServerError
from swiftlet.client.options import Options
from swiftlet.model import ObjectInfo, ObjectKey
from swiftlet.names import HashPath, Path
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.objects import ReplicatedObjects
from swiftlet.placement.plan import Place
from swiftlet.ring.model import Device, WriteQuorum
from swiftlet.timestamp import TimestampClock
from swiftlet.transport.native_replicas import NativeGetStream, NativeReplicas

LATELY_S = 10.0
"""Seconds for which it is remembered that devices have not shown an object to a guest, or a proxy has to read it."""
_QUORUMS: tuple[WriteQuorum, ...] = get_args(WriteQuorum)
MAX_LATELY = 1024
"""Such objects that are remembered; of more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Rights:
    """The part of a grant that requests need."""

    caller: GuestCaller
    signed: bytes
    account: str
    policy: int
    etag: str
    """What the ETag of a new object is: `md5` or `xxh3`."""
    write_quorum: WriteQuorum
    """Which copies acknowledge a write."""
    max_size: int
    container_replicas: int
    hash_path: HashPath


class Lately:
    """Objects about which something was learned a moment ago."""

    def __init__(self) -> None:
        """Begin with no object."""
        self._until: dict[tuple[str, str], float] = {}

    def note(self, container: str, name: str) -> None:
        """Remember an object for `LATELY_S`."""
        self._until[container, name] = time.monotonic() + LATELY_S
        if len(self._until) > MAX_LATELY:
            del self._until[next(iter(self._until))]

    def has(self, container: str, name: str) -> bool:
        """Return whether an object was noted a moment ago."""
        until = self._until.get((container, name))
        return until is not None and time.monotonic() < until

    def clear(self) -> None:
        """Forget all of them."""
        self._until.clear()


class AskedHealth(NodeHealth):
    """Which devices failed lately; those that are just being read from are read from last.

    So the second request of a hedged read goes to another device than the first one, which is slow.
    """

    def __init__(self) -> None:
        """Begin with devices that nobody asks."""
        super().__init__()
        self._asked: dict[int, int] = {}

    def begin(self, device: Device) -> None:
        """Note that a read begins."""
        self._asked[device.id] = self._asked.get(device.id, 0) + 1

    def end(self, device: Device) -> None:
        """Note that the answer has begun, or none comes."""
        left = self._asked.pop(device.id, 1) - 1
        if left:
            self._asked[device.id] = left

    def behind(self) -> frozenset[int]:
        """Return the ids of devices that reads ask last."""
        return super().behind() | self._asked.keys()


class GuestReplicas(NativeReplicas):
    """Replicas as a guest reads and writes them, for one request."""

    def __init__(self, calls: GuestCalls, health: AskedHealth) -> None:
        """Note in `health` where reads are under way."""
        super().__init__(calls)
        self._health = health

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> NativeGetStream:
        """Read bytes `[start, stop)`."""
        self._health.begin(device)
        try:
            return await super().get(device, key, start, stop, proved=proved)
        finally:
            self._health.end(device)

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""
        self._health.begin(device)
        try:
            return await super().head(device, key, proved=proved)
        finally:
            self._health.end(device)


class Parts:
    """The direct way of one client in one event loop."""

    def __init__(self, metadata: MetadataServer, options: Options) -> None:
        """Nothing is connected before the first request."""
        self._metadata = metadata
        self._options = options
        self._place = Place(options.region, options.zone)
        self.grants: Grants[Rights] = Grants(self._ask)
        self.rings = DirectRings(metadata.ring, metadata.ring_of)
        self.health = AskedHealth()
        self.behind = Behind()
        self.reports = Reports(metadata.missed)
        self.clock = TimestampClock(lambda: time.time_ns() + self._ahead_ns)
        self.devices = Outage("the devices")
        self.servers = Outage("the metadata servers")
        self.answers = 0
        """The number of answers of devices so far."""
        self.not_plain = Lately()
        """Objects that devices do not show to guests: mostly large ones, whose ranges are read next."""
        self.by_proxies = Lately()
        """Large objects that could not be read from the devices."""
        self.ahead = Ahead()
        self.hashing = Hashing()
        self._ahead_ns = 0
        """How far the servers' clock is ahead of this machine's."""
        self._device_ahead_ns = 0
        self._caller: GuestCaller | None = None
        self._former: list[GuestCaller] = []
        self._first = asyncio.Lock()
        self._closing: set[asyncio.Future[None]] = set()

    async def granted(self, container: str, kind: Kind, size: int | None) -> Granted[Rights]:
        """Return a grant, and have its ring. Raises GoByHttp when that can't be had now."""
        try:
            granted = await self.grants.of(container, kind, size)
            await self.rings.have(granted.rights.policy)
        except ClientError as error:
            # A storage URL that names no account is told as well.
            told = isinstance(error, (ConnectionFailed, ServerError, ConfigurationError))
            if told and not self.servers.lasts:
                self.servers.failed(error)
            raise GoByHttp(str(error)) from error
        return granted

    def calls(self, rights: Rights, name: str) -> GuestCalls:
        """Return the calls of one request for the object of this name."""
        policy = rights.policy

        def told(version: int, now_ms: int) -> None:
            self.answers += 1
            self._device_ahead_ns = now_ms * 1_000_000 - time.time_ns()
            self.rings.told(policy, version)

        return GuestCalls(rights.caller, rights.signed, name.encode(), told)

    def missed(self, rights: Rights, container: str, name: str) -> MissedOfObject:
        """Return what remembers, and tells metadata servers, which devices have missed writes of an object."""
        return MissedOfObject(self.behind, self.reports, rights.account, container, name)

    def objects(self, rights: Rights, container: str, name: str) -> ReplicatedObjects:
        """Return objects with their replicas, for one request for the object of this name."""
        calls = self.calls(rights, name)
        return ReplicatedObjects(
            self.rings,
            GuestReplicas(calls, self.health),
            RowsOfDevices(rights.container_replicas),
            rights.hash_path,
            self.health,
            self.missed(rights, container, name),
            place=self._place,
            quorums=lambda _policy: rights.write_quorum,
            writes=calls,
        )

    def path(self, rights: Rights, container: str, name: str) -> Path:
        """Return the place of an object."""
        return Path(rights.account, container, name)

    def follow_devices(self) -> None:
        """Take the time from the object server that answered last."""
        self._ahead_ns = self._device_ahead_ns

    async def close(self) -> None:
        """Close the connections of all sessions, and stop asking for grants and rings; what metadata servers are to be
        told is told first.
        """
        await self.reports.close()
        await self.grants.close()
        await self.rings.close()
        callers = [*self._former, *([] if self._caller is None else [self._caller])]
        self._former, self._caller = [], None
        await asyncio.gather(*(caller.close() for caller in callers), *self._closing)

    async def _ask(self, fields: Mapping[str, object]) -> Granted[Rights]:
        if self.servers.lasts:
            raise ConnectionFailed("the metadata servers could not be reached a moment ago", sent=False)
        if self._caller is not None:
            return await self._asked(fields)
        # Of many first questions each would be given a session of its own.
        async with self._first:
            return await self._asked(fields)

    async def _asked(self, fields: Mapping[str, object]) -> Granted[Rights]:
        account = await self._metadata.account()
        self.rings.expect(account, str(fields["container"]))
        session = {} if self._caller is None else {"session": base64.b64encode(self._caller.session).decode()}
        begun = time.monotonic()
        answer = await self._metadata.grant({"account": account, **fields, **session})
        try:
            granted = self._granted(answer, account, begun)
            # As if the answer took no time: by a clock that is ahead, writes would win over later ones of proxies.
            self._ahead_ns = int(answer["now"] * 1e9) - time.time_ns()
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionFailed(f"the metadata server's answer is not that of a grant: {error!r}") from error
        self.servers.worked()
        return granted

    def _granted(self, answer: Mapping[str, Any], account: str, begun: float) -> Granted[Rights]:
        life_s = answer["expires"] - answer["now"]
        secret = answer["hash_path"]
        rights = Rights(
            caller=self._caller_of(answer, begun),
            signed=base64.b64decode(answer["grant"]),
            account=account,
            policy=int(answer["policy"]["index"]),
            etag=str(answer["etag"]),
            write_quorum=_known_quorum(answer["write_quorum"]),
            max_size=int(answer["max_size"]),
            container_replicas=int(answer["container_replicas"]),
            hash_path=HashPath(base64.b64decode(secret["prefix"]), base64.b64decode(secret["suffix"])),
        )
        return Granted(rights, begun + life_s, begun + life_s / 2, answer["objects"], answer["bytes"])

    def _caller_of(self, answer: Mapping[str, Any], begun: float) -> GuestCaller:
        """Return the connections of the grant's session: new ones if the session is new."""
        shown = answer["session"]
        if shown is None:
            if self._caller is None:
                raise ValueError("no session")
            return self._caller
        made = GuestCaller(
            base64.b64decode(shown["token"]),
            base64.b64decode(shown["secret"]),
            int(answer["native_port_offset"]),
            [str(one) for one in answer["authorities"]],
            begun + shown["expires"] - answer["now"],
            self._options.connect_timeout_s,
            self._options.socket_directory,
        )
        if self._caller is not None:
            self._former.append(self._caller)
        self._caller = made
        self._close_former()
        return made

    def _close_former(self) -> None:
        """Close connections of earlier sessions that no grant and no transfer needs any more."""
        used: Sequence[GuestCaller] = [rights.caller for rights in self.grants.in_use()]
        for caller in [caller for caller in self._former if caller.is_idle and caller not in used]:
            self._former.remove(caller)
            closing = asyncio.ensure_future(caller.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _known_quorum(name: object) -> WriteQuorum:
    """Return a write quorum that this client knows; ValueError for one that it could not keep."""
    for known in _QUORUMS:
        if known == name:
            return known
    raise ValueError(f"write_quorum {name!r}")
