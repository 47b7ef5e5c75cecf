"""Kills, or stops for a while, one process of a store after the other, of each kind as often as of any other.

Fault model: SIGKILL of a process, started again at once or a little later, or SIGSTOP and SIGCONT, at random moments;
one at a time. A proxy's worker is started again by its proxy, everything else by the store's supervisor. Power loss of
one container server or of all of them: they are killed, and what they had not synced is gone.
"""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

import psutil

from e2e.standalone.cluster import Cluster
from e2e.standalone.model_checks import wait_until
from e2e.standalone.power import Power
from e2e.standalone.test_tls import TlsProxy
from swiftlet.main.commands.standalone.plan import Layout
from swiftlet.sync.failures.tests.redis_server import RedisServer

AWAY_S = (0.0, 0.3, 1.5)
"""How long a process is away, or stopped."""
STOPPED = 0.25
"""Share of the faults that stop a process instead of killing it."""
KINDS = ("object", "container", "replicator", "metadata", "proxy", "worker", "https", "redis", "power")


class Killer:
    """Disturbs one store; what it does follows from the chooser."""

    def __init__(
        self, cluster: Cluster, https: TlsProxy, redis: RedisServer, power: Power, chooser: random.Random
    ) -> None:
        self._cluster = cluster
        self._https = https
        self._redis = redis
        self._power = power
        self._chooser = chooser
        self._kinds: list[str] = []
        self.killed: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return self.killed.total()

    def step(self, over: threading.Event) -> None:
        """Kill or stop one process, and have it back; `over` ends the time that it is away."""
        if not self._kinds:
            self._kinds = self._chooser.sample(KINDS, len(KINDS))
        kind = self._kinds.pop()
        is_stopped = self._chooser.random() < STOPPED and kind != "power"
        away_s = self._chooser.choice(AWAY_S)
        does: dict[str, Callable[[bool, float, threading.Event], None]]
        does = {"worker": self._worker, "https": self._https_proxy, "redis": self._table, "power": self._dark}
        does.get(kind, partial(self._service, kind))(is_stopped, away_s, over)
        (self.stopped if is_stopped else self.killed)[kind] += 1

    def _service(self, kind: str, is_stopped: bool, away_s: float, over: threading.Event) -> None:
        victim = self._chooser.choice([name for name in sorted(self._cluster.services) if kind in name.split("-")])
        if is_stopped:
            _stop(psutil.Process(self._cluster.pids[victim]), away_s, over)
            return
        self._cluster.kill(victim)
        over.wait(away_s)
        self._cluster.start(victim)

    def _worker(self, is_stopped: bool, away_s: float, over: threading.Event) -> None:
        """A worker of either proxy."""
        proxy = psutil.Process(self._chooser.choice([self._cluster.pids["proxy"], self._https.process.pid]))
        before = proxy.children()
        victim = self._chooser.choice(before)
        if is_stopped:
            _stop(victim, away_s, over)
            return
        victim.kill()
        wait_until(lambda: len(after := proxy.children()) == len(before) and after != before, "another worker")

    def _https_proxy(self, is_stopped: bool, away_s: float, over: threading.Event) -> None:
        if is_stopped:
            _stop(psutil.Process(self._https.process.pid), away_s, over)
            return
        self._https.kill()
        over.wait(away_s)
        self._https.start()

    def _table(self, is_stopped: bool, away_s: float, over: threading.Event) -> None:
        if is_stopped:
            self._redis.hang(True)
            over.wait(away_s)
            self._redis.hang(False)
            return
        self._redis.kill()
        over.wait(away_s)
        self._redis.start()

    def _dark(self, is_stopped: bool, away_s: float, over: threading.Event) -> None:
        """One container server, or all of them, without power."""
        servers = sorted(name for name in self._cluster.services if name.startswith("container-"))
        victims = self._chooser.choice([servers, [self._chooser.choice(servers)]])
        self._cluster.kill(*victims)
        for victim in victims:
            self._power.cut(Layout(self._cluster.data).devices / f"c{victim.partition('-')[2]}")
        over.wait(away_s)
        self._cluster.start(*victims)


def _stop(process: psutil.Process, away_s: float, over: threading.Event) -> None:
    """A process that hangs, and goes on as if no time had passed."""
    process.send_signal(signal.SIGSTOP)
    over.wait(away_s)
    process.send_signal(signal.SIGCONT)
