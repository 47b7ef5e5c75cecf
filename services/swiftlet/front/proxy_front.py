"""The front of one proxy process: makes grants for requests, renews them while they are used, withdraws them on
changes.

A grant also ends with the next change of its account, or of a container in it, by any process of the proxy: the front
looks at the counter of such changes (`api.shared_changes`) with each request.

Fault model: the API may refuse, fail or not know at any time: then nothing is granted, and requests go to Python. The
front's thread may die: then the process has to end, as no client could connect any more. If something is withdrawn
between a decision and its grant, the decision does not count.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import ssl
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from aiohttp import web
from swiftlet_native import Front

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import Unavailable
from swiftlet.front.connections import Connection, ConnectionHandover
from swiftlet.front.deciding import Deciding, Grant, below_of
from swiftlet.front.handshake_records import HandshakeRecords
from swiftlet.front.lending import Lending
from swiftlet.front.routes import CodedPeers, CodedRoutes, ContainerPeers, ContainerRoutes, Peers, Routes
from swiftlet.front.row_batches import RowBatches
from swiftlet.front.row_records import RowRecords, RowsStatus
from swiftlet.front.secure import CertificateInUse
from swiftlet.front.withdrawing import Withdrawals, withdrawal
from swiftlet.names import HashPath
from swiftlet.native_values import bits_of
from swiftlet.placement.metrics import HEDGED_READS
from swiftlet.placement.rings import Rings
from swiftlet.ring.lookup import Ring
from swiftlet.timestamp import NONCE_BITS, Timestamp
from swiftlet.web.app import METRICS
from swiftlet.web.logs import log_encoded
from swiftlet.web.metrics import DURATION_BUCKETS_S, HttpMetrics

RENEW_S = 0.25
"""Seconds between checks of which grants are used."""
MAX_RENEWED = 1000
"""The number of grants that one check renews; others are decided again after they have ended."""
MAX_REMEMBERED = 10_000
"""The number of grants, ended ones among them, of which it is known what they rest on."""
_AT_ONCE = 100
"""The number of grants that are extended before the event loop gets its turn."""
MAX_DECIDING = 32
"""The number of decisions that are made at a time, each of which may have to ask container servers."""
_PLAIN = frozenset(
    {
        "content-type",
        "etag",
        "last-modified",
        "x-timestamp",
        "accept-ranges",
        "content-length",
        "x-trans-id",
        "x-openstack-request-id",
        "date",
        "content-range",
        "content-encoding",
        "content-disposition",
        "content-language",
        "cache-control",
        "expires",
        "x-robots-tag",
        "x-delete-at",
    }
)
"""Headers of answers that the front could have given, besides those that begin with `x-object-meta-`."""
_WRITES = {"PUT": frozenset({201, 412}), "DELETE": frozenset({204})}
"""The statuses of writes that the front could have answered: those of success, and that there is an object already."""
_READ = frozenset({200, 206, 304})
"""Statuses of reads that the front could have answered."""
_REFUSED = frozenset({412, 416})
"""The same, if the answer describes the object; other requests are refused with these statuses, too."""


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """How the front treats connections; times are in seconds."""

    hash_path: HashPath
    client_timeout_s: float
    answer_timeout_s: float
    large_bytes: int
    """The most bytes that answers of more than 64 KiB may have together, which are received into the transport's
    memory.
    """
    writes: bool = True
    """Whether the front also answers PUTs and DELETEs."""
    store_timeout_s: float = 1.5
    """Seconds for which the front waits until all devices have carried out a write, before Python repeats it; for a
    DELETE as long as most have not answered, up to `answer_timeout_s`.
    """


class FrontStatus(TypedDict):
    """The fields of the front in a status report."""

    state: str
    """`on` or `off`, with what is answered, or the reason."""
    connections: int
    """The number of connections that the front holds."""
    answered: int
    """The number of requests that the front answered."""
    waiting: int
    """The number of connections that wait to be accepted by aiohttp."""
    rows: NotRequired[RowsStatus]
    """The numbers of rows of writes, by what became of them; missing without a front."""


Holder = tuple[bool, bytes, bytes]
"""Whether to write, the token, and the path up to the container's slash, as sent."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A grant as the front was told of it."""

    grant: Grant
    token: str
    what: tuple[bytes, int, bool, bool, bool, list[int], int]
    pools: list[int]
    rings: tuple[Ring, Ring] | None
    """The rings by which objects and rows are placed."""

    def give(self, front: Front, holder: Holder, seen: tuple[int, int], valid_s: float) -> bool:
        """Make the grant, and return whether there was room for it."""
        write, token, prefix = holder
        return front.grant(write, token, prefix, *self.what, seen, valid_s, self.pools)


TAKE_S = 0.1
"""Seconds between two collections of the front's answers."""


class AccessRecords:
    """Takes from the front what it has answered, and enters it into the access log and the metrics like
    other requests.
    """

    def __init__(self, front: Front, metrics: HttpMetrics) -> None:
        """Requests are counted in `metrics`."""
        self._front = front
        self._metrics = metrics
        self.total = 0
        """The number of answers that were taken so far."""
        self._busy = 0
        """The number of requests in flight that the metrics count for the front."""

    def take(self) -> int:
        """Log and count what was answered since the last call; return the number of answers."""
        self._count_busy(self._front.busy())
        lines, counted = self._front.records(DURATION_BUCKETS_S)
        if not counted:
            return 0
        answers = 0
        for method, status, received, sent, seconds, within in counted:
            self._metrics.answered_within(method, status, within, seconds, received, sent)
            answers += sum(within)
        log_encoded("access", "request", lines, time.time())
        self.total += answers
        return answers

    def end(self) -> None:
        """Count nothing as in flight any more, since the front has ended."""
        self._count_busy(0)

    def _count_busy(self, busy: int) -> None:
        if busy != self._busy:
            self._metrics.in_flight.inc(busy - self._busy)
            self._busy = busy


class ProxyFront:
    """Implements `swiftlet.web.front_listener.FrontListener`, and is notified of the application's answers."""

    def __init__(
        self,
        app: web.Application,
        api: SwiftApi,
        rings: Rings,
        peers: Peers,
        settings: FrontSettings,
        withdrawals: Withdrawals,
        container_peers: ContainerPeers | None = None,
        certificate: CertificateInUse | None = None,
        coded_peers: CodedPeers | None = None,
    ) -> None:
        """Serve the API of `app`, which reports its changes to `withdrawals`; nothing begins before `open`.

        Without `container_peers` Python delivers all rows, and without `coded_peers` it reads all objects with erasure
        coding. With a `certificate` clients have to speak TLS.
        """
        self._app = app
        self._api = api
        self._rings = rings
        self._peers = peers
        self._container_peers = container_peers
        self._coded_peers = coded_peers
        self._settings = settings
        self._deciding = Deciding(api)
        self._withdrawals = withdrawals
        self._certificate = certificate
        self._running: _Running | None = None
        self._state = "off: connections do not come through the front"
        self._given: dict[Holder, _Given] = {}
        """The last grants, which may be extended, or made once more when they have ended."""
        self._granting: set[asyncio.Task[None]] = set()
        self._deciders = asyncio.Semaphore(MAX_DECIDING)
        self._opened = asyncio.Event()
        self._finishing: asyncio.Task[None] | None = None
        """Lets go of the room that was held for the front."""
        app.on_response_prepare.append(self._withdraw_before)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Return the context of the port's certificate; None for plain HTTP."""
        return None if self._certificate is None else self._certificate.context

    def open(self, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> None:
        """Accept connections. Raises OSError when the system has no thread or descriptor for the front, or the front
        can't use the certificate.
        """
        try:
            front = self._front(keepalive_s)
        except OSError as error:
            self._state = f"off: the front can't be started: {error}"
            raise
        objects = self._api.objects.by_policy
        routes = Routes(front, self._rings, self._peers, objects.is_suppressed, objects.place, objects.quorums)
        containers = coded = None
        if self._coded_peers is not None:
            how = objects.is_avoided, objects.place, objects.codings, objects.pack_below
            coded = CodedRoutes(front, self._rings, self._coded_peers, *how)
        if self._container_peers is not None and self._settings.writes:
            containers = ContainerRoutes(front, self._rings, self._container_peers)
        records, lending = AccessRecords(front, self._app[METRICS]), Lending(front, self._api)
        row_batches = RowBatches(front, self._api, self._rings, lending.delivered)
        connections, row_records = ConnectionHandover(front, self, self.tls), RowRecords(front)
        handshakes = HandshakeRecords(front)
        self._running = _Running(
            front, routes, coded, containers, connections, records, row_batches, row_records, handshakes, lending
        )
        self._opened.set()
        # What Python writes has a newer timestamp than what the front has written, whatever happened to the wall clock.
        self._api.clock.follow(front.newest)
        if self._certificate is not None:
            self._certificate.follow(front.renew)
        self._withdrawals.begin(front)
        self._running.connections.open(server, sockets)
        self._state = "on: reads and writes" if self._settings.writes else "on: reads; proxy.front_put is false"

    def _front(self, keepalive_s: float) -> Front:
        settings, hash_path = self._settings, self._settings.hash_path
        certificate = self._certificate
        try:
            return Front(
                (hash_path.prefix, hash_path.suffix),
                self._api.changes.counters,
                nonce=random.getrandbits(NONCE_BITS),
                keepalive_s=keepalive_s,
                client_timeout_s=settings.client_timeout_s,
                answer_timeout_s=settings.answer_timeout_s,
                store_timeout_s=settings.store_timeout_s,
                large_bytes=settings.large_bytes,
                tls=None if certificate is None else (*certificate.pem, certificate.ticket_secret),
            )
        except ValueError as error:
            raise OSError(f"it can't use the certificate: {error}") from error

    async def leave(self) -> None:
        """Accept no more connections, and have rows listed for what is being stored, as soon nobody will do that any
        more.
        """
        if self._running is not None:
            await self._running.connections.leave()
            await self._running.row_batches.finish()
            self._finishing = asyncio.create_task(self._running.lending.finish())

    def is_busy(self) -> bool:
        """Whether the front has connections."""
        return self._running is not None and self._running.connections.is_busy()

    async def close(self, patience_s: float) -> None:
        """Let the front finish its requests within this time, then end the rest."""
        running, self._running = self._running, None
        self._withdrawals.end()
        if self._certificate is not None:
            self._certificate.follow(None)
        for task in self._granting:
            task.cancel()
        await asyncio.gather(*self._granting, return_exceptions=True)
        if self._finishing is not None:
            await self._finishing
        if running is not None:
            await running.routes.close()
            if running.containers is not None:
                await running.containers.close()
            if running.coded is not None:
                await running.coded.close()
            await running.connections.close(patience_s)
            self._api.clock.observe(Timestamp(running.front.newest()))
            self._api.clock.follow(None)
            running.take_records()
            running.access_records.end()

    def status(self) -> FrontStatus:
        """Return the field `front` of the status report."""
        running = self._running
        if running is None:
            return FrontStatus(state=self._state, connections=0, answered=0, waiting=0)
        running.take_records()
        front, answered, rows = running.front, running.access_records.total, running.row_records.status()
        return FrontStatus(
            state=self._state, connections=front.open(), answered=answered, waiting=front.waiting(), rows=rows
        )

    async def _withdraw_before(self, request: web.Request, _response: web.StreamResponse) -> None:
        self.ended(request)

    def ended(self, request: web.BaseRequest) -> None:
        """Withdraw what a request may have changed."""
        ended = withdrawal(request.method, request.rel_url.raw_path, request.rel_url.raw_query_string)
        if ended is not None:
            self._withdrawals.withdraw(ended.account)

    def answered(
        self, connection: Connection, request: web.BaseRequest, response: web.StreamResponse, raw: bytes, received: int
    ) -> None:
        """Make a grant for the request, if the front could have answered it, and give the connection back."""
        running = self._running
        if running is None or not is_plain(request, response):
            return
        if request.method in _WRITES and not self._settings.writes:
            return
        asked = Front.asked(raw, received)
        if asked is None:
            return
        if running.front.has(*asked):
            running.connections.give_back(connection)
        else:
            self._begin(self._grant_to(running, connection, asked))

    def _begin(self, granting: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(granting)
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)

    def decide(self) -> None:
        """Decide about the requests that wait for it in the front."""
        running = self._running
        if running is not None:
            for asked in running.front.undecided():
                if not self._grant_again(running, asked):
                    self._begin(self._decide(running, asked))

    def _grant_again(self, running: _Running, asked: Holder) -> bool:
        """Make a grant that has ended once more, if a decision would be the same."""
        given = self._given.get(asked)
        if given is None:
            return False
        seen = self._api.changes.of_grants(given.grant.path.account)
        valid_s = self._holds_again(running, asked, given)
        if valid_s is None:
            return False
        running.front.decided(*asked, given.give(running.front, asked, seen, valid_s))
        return True

    def _holds_again(self, running: _Running, asked: Holder, given: _Given) -> float | None:
        """Return for how many seconds what was granted holds as it is; None where it has to be decided anew."""
        valid_s = self._deciding.again(given.token, asked[0], given.grant)
        if valid_s is None or self._rings_of(given.grant) != given.rings:
            return None
        # The pools are in use as long as grants name them.
        return valid_s if running.lending.pools(given.grant.limits) == given.pools else None

    def _rings_of(self, grant: Grant) -> tuple[Ring, Ring] | None:
        """Return by which rings objects and rows are placed; None while one of them is not known."""
        try:
            return self._rings.objects(grant.policy), self._rings.container()
        except Unavailable:
            return None

    async def _decide(self, running: _Running, asked: Holder) -> None:
        write, is_granted = asked[0], False
        try:
            if self._settings.writes or not write:
                async with self._deciders:
                    is_granted = await self._grant(running, *asked)
        finally:
            running.front.decided(*asked, is_granted)

    def made(self) -> None:
        """Publish listing rows for the objects that the front stored, or deleted."""
        if self._running is not None:
            self._running.row_batches.take()

    async def _grant_to(self, running: _Running, connection: Connection, asked: Holder) -> None:
        if await self._grant(running, *asked):
            running.connections.give_back(connection)

    async def _grant(self, running: _Running, write: bool, token: bytes, prefix: bytes) -> bool:
        asked = below_of(prefix.decode("ascii"))
        if asked is None:
            return False
        withdrawn, seen = self._withdrawals.count, self._api.changes.of_grants(asked.account)
        grant = await self._deciding.decide(token.decode("ascii"), prefix.decode("ascii"), write)
        if grant is None or withdrawn != self._withdrawals.count:
            return False
        running.tell(grant.policy)
        rows, awaited = self._rows(grant) if write else ([], 0)
        pools = running.lending.pools(grant.limits)
        if write and running.containers is not None:
            running.containers.refresh()
        what = grant.container, grant.policy, grant.reads, grant.xxh3_etags, grant.expiring, rows, awaited
        holder = write, token, prefix
        given = _Given(grant, token.decode("ascii"), what, pools, self._rings_of(grant))
        self._remember(holder, given)
        return given.give(running.front, holder, seen, grant.valid_s)

    def _remember(self, holder: Holder, given: _Given) -> None:
        self._given.pop(holder, None)
        if given.grant.grounds is not None and given.rings is not None:
            self._given[holder] = given
            if len(self._given) > MAX_REMEMBERED:
                del self._given[next(iter(self._given))]

    def _rows(self, grant: Grant) -> tuple[list[int], int]:
        """Return which container replicas each copy of an object has to update, and which of them clients wait for, as
        bits.
        """
        shares, awaited = self._api.objects.by_policy.shares(grant.path, grant.policy)
        return [bits_of(share) for share in shares], bits_of(awaited)

    async def renew(self) -> None:
        """Renew grants that are used, until cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            running = self._running
            if running is not None:
                running.routes.refresh()
                if running.coded is not None:
                    running.coded.refresh()
                if running.containers is not None:
                    running.containers.refresh()
                used = await self._extend(running, running.front.used())
                await asyncio.gather(*(self._renew(running, one) for one in used[:MAX_RENEWED]))

    async def _extend(self, running: _Running, used: list[Holder]) -> list[Holder]:
        """Extend the grants of which a decision would be the same; return the others."""
        given: dict[str, list[tuple[Holder, _Given]]] = {}
        others: list[Holder] = []
        for holder in used:
            one = self._given.get(holder)
            if one is None:
                others.append(holder)
            else:
                given.setdefault(one.grant.path.account, []).append((holder, one))
        found = await asyncio.gather(*(self._extend_in(running, account, some) for account, some in given.items()))
        return [*others, *itertools.chain.from_iterable(found)]

    async def _extend_in(self, running: _Running, account: str, given: list[tuple[Holder, _Given]]) -> list[Holder]:
        """Extend grants of one account; return those that have to be decided anew."""
        others: list[Holder] = []
        if any(write for (write, _, _), _ in given):
            await self._deciding.refresh_account(account, RENEW_S / 2)
        for begin in range(0, len(given), _AT_ONCE):
            extended: list[tuple[Holder, float]] = []
            for holder, one in given[begin : begin + _AT_ONCE]:
                valid_s = self._holds_again(running, holder, one)
                if valid_s is None:
                    others.append(holder)
                else:
                    extended.append((holder, valid_s))
            running.front.extend(extended)
            await asyncio.sleep(0)
        return others

    async def _renew(self, running: _Running, holder: Holder) -> None:
        async with self._deciders:
            await self._grant(running, *holder)

    async def lend(self) -> None:
        """Lend room to the front where quotas apply, until cancelled."""
        await self._opened.wait()
        if self._running is not None:
            await self._running.lending.run()

    async def record(self) -> None:
        """Log and count what the front answers, until cancelled. Raises RuntimeError when its thread has ended."""
        while True:
            await asyncio.sleep(TAKE_S)
            if self._running is not None:
                self._running.take_records()
                check_alive(self._running.front)


@dataclass(frozen=True, slots=True)
class _Running:
    """The objects that exist between `open` and `close`."""

    front: Front
    routes: Routes
    coded: CodedRoutes | None
    containers: ContainerRoutes | None
    connections: ConnectionHandover
    access_records: AccessRecords
    row_batches: RowBatches
    row_records: RowRecords
    handshakes: HandshakeRecords
    lending: Lending

    def tell(self, policy: int) -> None:
        """Inform the front where the objects of a policy are."""
        if self.coded is not None and self.coded.has(policy):
            self.coded.tell(policy)
        else:
            self.routes.tell(policy)

    def take_records(self) -> None:
        """Log and count what the front has done since the last call."""
        self.access_records.take()
        HEDGED_READS.inc(self.front.hedged())
        self.row_records.take()
        self.handshakes.take()


def check_alive(front: Front) -> None:
    """Raise RuntimeError when the front has stopped accepting connections: the process then ends and is replaced."""
    if not front.is_alive():
        raise RuntimeError("the thread that accepts connections has ended unexpectedly")


def is_plain(request: web.BaseRequest, response: web.StreamResponse) -> bool:
    """Return whether the front could have given this answer."""
    method, has_length = request.method, response.content_length is not None
    names = (name.lower() for name in response.headers)
    if method in _WRITES:
        good = response.status in _WRITES[method]
    else:
        good = response.status in _READ or (response.status in _REFUSED and "Etag" in response.headers)
    return good and has_length and all(name in _PLAIN or name.startswith("x-object-meta-") for name in names)
