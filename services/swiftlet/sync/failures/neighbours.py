"""Decides which nodes are left out of rounds and which are back: by own exceptions, by others' reports, and by probes
where both differ.

A node that is out comes in again by one thing only: an answer to this observer, mostly to a probe. Probes are one
small request each, one at a time per node. They are sent
- at once, when somebody says that the node failed, or is back, or when its heartbeat begins or ends;
- every `retry_s` while the node is out, so that a dead one costs a request now and then, and no rounds wait for it.
A probe is only sent on some suspicion, so one that fails confirms it: the node is suppressed for another interval.

Fault model: that of `swiftlet.sync.failures.opinions`; and probes may hang, which their caller ends.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import structlog
from prometheus_client import Counter, Gauge

from swiftlet.ring.model import Device
from swiftlet.sync.failures.opinions import Evidence, Observer, Opinions, Verdict, is_majority, judge
from swiftlet.sync.failures.table import Exceptions, FailureTable

OUT = Gauge("swiftlet_replicator_neighbours_out", "Nodes that rounds leave out.", ["verdict"])
PROBES = Counter("swiftlet_replicator_probes_total", "Requests that only ask whether a node is there.", ["result"])
REJOINED = Counter("swiftlet_replicator_rejoined_total", "Nodes that answered again after they were left out.")

MAX_REPORTED = 64
"""Nodes in a status report."""
_PROBES_AT_A_TIME = 16

_log = structlog.get_logger("replicator")


class News(Enum):
    """The notices that an observer sends to the others."""

    FAILED = "failed"
    WELL = "well"
    CUT_OFF = "cut-off"
    """The observer is cut off itself: its reports do not count."""
    JOINED = "joined"
    """The node has started with its devices: observers that have left it out should probe it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the others should hear at once; `node` is what it is about."""

    news: News
    node: str


def node_of(device: Device) -> str:
    """The object server of a device."""
    return f"{device.host}:{device.port}"


class Neighbours:
    """All other nodes in the rings, as one observer sees them."""

    def __init__(
        self,
        me: Observer,
        table: FailureTable,
        probe: Callable[[Device], Awaitable[bool]],
        retry_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[Notice], None] = lambda notice: None,
    ) -> None:
        """`probe` returns whether a device's node answers, in bounded time; `clock` returns monotonic seconds.

        `tell` sends a notice to the other observers, and returns at once.
        """
        self.me = me
        self.table = table
        self.opinions = Opinions(me, table.interval_s)
        self._tell = tell
        self.cut_off = False
        """Whether this observer probably is cut off and therefore does not trust its own observations."""
        self._probe = probe
        self._retry_s = retry_s
        self._clock = clock
        self._devices: dict[str, Device] = {}
        self._by_ring: dict[int, dict[str, Device]] = {}
        self._out: dict[str, tuple[Verdict, float]] = {}
        self._vain: dict[str, float] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_PROBES_AT_A_TIME)
        self._back: set[str] = set()
        self._news = asyncio.Event()

    @property
    def nodes(self) -> frozenset[str]:
        """The peers: all nodes of the rings except this one."""
        return frozenset(self._devices)

    def now(self) -> float:
        """Return the current time on the clock of the table."""
        return self._clock()

    def know(self, policy: int, devices: Iterable[Device | None]) -> None:
        """Learn the devices of a policy's ring; nodes that are in no ring any longer are forgotten."""
        self._by_ring[policy] = {
            node_of(device): device for device in devices if device is not None and node_of(device) != self.me.name
        }
        self._devices = {node: device for ring in self._by_ring.values() for node, device in ring.items()}
        self.table.keep(self.nodes)
        self.opinions.keep(self.nodes)
        for known in (self._out, self._vain):
            for node in known.keys() - self.nodes:
                del known[node]
        self._count()

    # What rounds ask and report.

    def skips(self, node: str) -> bool:
        """Return at once whether to leave the node out now."""
        if node not in self._out:
            return False
        self._look_after(node)
        return True

    def away(self, devices: Iterable[Device | None]) -> frozenset[int]:
        """Return the ids of the ring's devices whose nodes are to be left out now."""
        return frozenset(device.id for device in devices if device is not None and self.skips(node_of(device)))

    def failed(self, node: str) -> None:
        """Record that the node could not be reached or did not answer in time."""
        if node not in self._devices:
            return
        now = self._clock()
        self._vain[node] = now
        if self.table.failed(node, now):
            self._after_own(node)
        elif self.opinions.voices(node, now):
            self._weigh(node)

    def succeeded(self, node: str) -> None:
        """Record that the node answered."""
        if node not in self._devices:
            return
        self._vain.pop(node, None)
        self.table.succeeded(node, self._clock())
        if node in self._out:
            self._rejoin(node)

    def take_back(self) -> frozenset[str]:
        """Return the nodes that have come back since the last call."""
        back = frozenset(self._back)
        self._back.clear()
        self._news.clear()
        return back

    @property
    def somebody_is_back(self) -> bool:
        """Whether `take_back` would return any node."""
        return bool(self._back)

    async def wait_for_back(self, timeout_s: float) -> None:
        """Wait until a node comes back, at most for this time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return

    # What other observers report.

    def hear(self, notice: Notice, by: Observer) -> None:
        """Process a notice of another observer; notices of unknown observers are ignored."""
        if by.name not in self._devices:
            return
        match notice.news:
            case News.FAILED if notice.node in self._devices:
                self.opinions.hear_failed(by, notice.node, self._clock())
                self.heard([notice.node])
            case News.WELL:
                self.opinions.hear_well(by.name, notice.node)
                self.maybe_back(notice.node)
            case News.CUT_OFF:
                self.opinions.forget(by.name)
                self.heard()
            case News.JOINED:
                self.maybe_back(by.name)

    def heard(self, nodes: Iterable[str] = ()) -> None:
        """Note that opinions on these nodes, or on any node, have changed."""
        for node in (set(nodes) or (self.opinions.nodes(self._clock()) | self._out.keys())) & self._devices.keys():
            self._weigh(node)

    def suspect(self, node: str) -> None:
        """Probe a node now."""
        if node in self._devices:
            self._ask(node)

    def maybe_back(self, node: str) -> None:
        """Note that a node reports that it is back: probe it now if it was left out."""
        if node in self._out:
            self._ask(node)

    def adopt(self, rows: Mapping[str, Exceptions]) -> None:
        """Take over what this observer knew before its restart."""
        self.table.merge({node: row for node, row in rows.items() if node in self._devices}, self._clock())
        for node in self.table.all_suppressed(self._clock()):
            self._after_own(node)

    async def watch(self) -> None:
        """Probe the nodes that are left out, also while no round asks for them, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._retry_s)
                self.heard()
                for node in list(self._out):
                    self._look_after(node)
        finally:
            for task in self._probing.values():
                task.cancel()

    def report(self) -> dict[str, object]:
        """Return what the status report says about neighbours; times are in seconds before now."""
        now = self._clock()
        rows = self.table.rows(now)
        concerned = sorted(rows.keys() | self._out.keys() | (self.opinions.nodes(now) & self.nodes))
        return {
            "observer": self.me.name,
            "cutOff": self.cut_off,
            "peers": len(self._devices),
            "out": len(self._out),
            "nodes": {node: self._fields(node, rows.get(node), now) for node in concerned[:MAX_REPORTED]},
        }

    def _fields(self, node: str, row: Exceptions | None, now: float) -> dict[str, object]:
        verdict, since = self._out.get(node, (Verdict.WELL, None))
        return {
            "verdict": verdict.value,
            "outForS": None if since is None else round(now - since, 1),
            "exceptions": row.n_exception if row else 0,
            "lastExceptionS": round(now - row.t_exception, 1) if row else None,
            "voices": self.opinions.voices(node, now),
        }

    # Deciding.

    def _after_own(self, node: str) -> None:
        """Note that this observer's exceptions with a node have just reached the limit."""
        self._trust_myself()
        self._weigh(node)
        if not self.cut_off:
            self._tell(Notice(News.FAILED, node))

    def _trust_myself(self) -> None:
        """Determine again whether most of the peers can't be reached from this node."""
        cut_off = is_majority(len(self.table.all_suppressed(self._clock())), len(self._devices))
        if cut_off == self.cut_off:
            return
        self.cut_off = cut_off
        if cut_off:
            _log.warning("most peers can't be reached; probably this node is cut off")
            self._tell(Notice(News.CUT_OFF, self.me.name))
        else:
            _log.info("most peers can be reached again")
        self.heard()

    def _weigh(self, node: str) -> None:
        now = self._clock()
        voices, last = self.opinions.voices(node, now), self.opinions.last(node, now)
        answered = last is not None and self.table.well_at(node) >= last
        verdict = judge(
            Evidence(
                exceptions=self.table.suppressed(node, now),
                tried_in_vain=now - self._vain.get(node, -math.inf) < self.table.interval_s,
                answered=answered,
                voices=voices,
                cut_off=self.cut_off,
                majority=is_majority(len(self._out.keys() | {node}), len(self._devices)),
            )
        )
        if verdict is Verdict.WELL:
            if node in self._out or (voices and not answered):
                self._ask(node)
            return
        before, out_since = self._out.get(node, (Verdict.WELL, now))
        self._out[node] = (verdict, out_since)
        if before is Verdict.WELL:
            _log.warning("a node is left out of rounds", node=node, verdict=verdict.value, others_say_so=voices)
            if not self.table.suppressed(node, now):
                self._ask(node)
        self._count()

    def _rejoin(self, node: str) -> None:
        _, since = self._out.pop(node)
        _log.info("a node can be reached again", node=node, away_s=round(self._clock() - since, 1))
        REJOINED.inc()
        self._back.add(node)
        self._news.set()
        self._tell(Notice(News.WELL, node))
        self._trust_myself()
        self._count()

    def _count(self) -> None:
        for verdict in (Verdict.FAILED, Verdict.DOUBTED):
            OUT.labels(verdict.value).set(sum(found is verdict for found, _ in self._out.values()))

    # Probing.

    def _look_after(self, node: str) -> None:
        """Probe a node that is left out, if it is time to."""
        if self._clock() - self._vain.get(node, -math.inf) >= self._retry_s:
            self._ask(node)

    def _ask(self, node: str) -> None:
        if node not in self._probing:
            self._probing[node] = asyncio.get_running_loop().create_task(self._asking(node, self._devices[node]))

    async def _asking(self, node: str, device: Device) -> None:
        try:
            async with self._slots:
                answered = await self._probe(device)
        finally:
            del self._probing[node]
        PROBES.labels("answered" if answered else "failed").inc()
        if answered:
            self.succeeded(node)
        elif node in self._devices:
            now = self._clock()
            self._vain[node] = now
            if self.table.suppress(node, now):
                self._after_own(node)
