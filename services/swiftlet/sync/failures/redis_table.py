"""The failure tables of all observers, shared through Redis; heartbeats; and notices by pub/sub.

Decisions rest on the local table, `Neighbours`. It is written to Redis with every heartbeat, and at once when something
changed, and the tables of the others are read. So whatever was said while Redis was away, or got lost on the channel,
is known one heartbeat later. Notices only make it faster.

Fault model: Redis may be away from the start, be killed, come back empty, hang, or answer with garbage, at any moment.
Each of the two connections may break alone, with or without an error. No round waits for anything here: what rounds use
is in memory. While Redis is away each observer goes by its own exceptions and probes. It does not count the others'
heartbeats as missed (all of them are), and queues nothing but the notices to send next.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import redis.asyncio
import structlog
from prometheus_client import Counter, Gauge

from swiftlet.sync.failures.neighbours import Neighbours, Notice
from swiftlet.sync.failures.opinions import MAX_OBSERVERS, Observer, is_majority
from swiftlet.sync.failures.redis_link import Problem, RedisOptions, make_client, problem_of
from swiftlet.sync.failures.redis_wire import (
    Heartbeat,
    Keys,
    heartbeat_of,
    heartbeat_text,
    notice_of,
    notice_text,
    row_texts,
    rows_of,
)

UP = Gauge("swiftlet_replicator_redis_up", "Whether Redis took the last heartbeat.")
NOTICES = Counter("swiftlet_replicator_notices_total", "Notices through Redis, both ways.", ["direction", "news"])

HEARTBEATS_LIVED = 3
"""The number of missed heartbeats after which an observer counts as ended."""
PROGRESS_LIFE_S = 3600
"""Seconds for which the progress of a round is kept."""
_MAX_PENDING = 1000
"""Notices that wait to be sent; above this number the oldest are dropped, as the table says the same."""
_GAP_S = 0.05
"""The least number of seconds between two exchanges with Redis."""
_SPREAD = 0.1
"""Share by which heartbeats differ, so that observers don't all come at the same moment."""

_log = structlog.get_logger("replicator")


class Notices:
    """Notices of this observer that wait to be sent; shared by neighbours and the table."""

    def __init__(self) -> None:
        self._waiting: deque[Notice] = deque(maxlen=_MAX_PENDING)
        self._wake = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        """Queue a notice for the others; returns at once."""
        self._waiting.append(notice)
        self.wake()

    def waiting(self) -> list[Notice]:
        """Return all notices that wait, the oldest first."""
        return list(self._waiting)

    def sent(self, notice: Notice) -> None:
        """Remove the oldest notice after it was sent, unless it was dropped in the meantime."""
        if self._waiting and self._waiting[0] is notice:
            self._waiting.popleft()

    def clear(self) -> None:
        """Drop all notices, because they can't be sent."""
        self._waiting.clear()

    def wake(self) -> None:
        """Make `wait_for_more` return, also when there is no new notice."""
        self._wake.set()

    def begin_sending(self) -> None:
        """Begin to send what waits now: `wait_for_more` then waits for further notices."""
        self._wake.clear()

    async def wait_for_more(self) -> None:
        """Return when a notice was added or `wake` was called since `begin_sending`."""
        await self._wake.wait()


class RedisTable:
    """The connection of one observer to the tables of all."""

    def __init__(
        self,
        options: RedisOptions,
        cluster: str,
        neighbours: Neighbours,
        notices: Notices,
        progress: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Create the table without a connection; `run` connects. Raises ValueError for a URL that can't be used.

        `notices` are those of `neighbours`; `progress` returns the text about the current round that is to be stored.
        """
        self._options = options
        self._keys = Keys(cluster)
        self._neighbours = neighbours
        self._client = make_client(options)
        self._life = secrets.token_hex(8)
        self.notices = notices
        self._beats: dict[str, Heartbeat] | None = None
        self._is_new = True
        self._asked = False
        self._problem: Problem | None = None
        self._progress = progress
        self.recalled: str | None = None
        """The progress that this replicator had stored before its restart."""
        self.first_try = asyncio.Event()
        """Set when Redis was asked for what was known before the restart, with or without success."""

    @property
    def is_up(self) -> bool:
        """Whether Redis took the last heartbeat."""
        return self._asked and self._problem is None

    @property
    def problem(self) -> Problem | None:
        """Why Redis did not take the last heartbeat; None when it did, and before the first one."""
        return self._problem

    async def run(self) -> None:
        """Send heartbeats and receive notices until cancelled; errors of Redis end neither."""
        client = self._client
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat(client))
                tasks.create_task(self._listen(client))
        finally:
            await client.aclose()

    # Heartbeats and tables.

    async def _beat(self, client: redis.asyncio.Redis) -> None:
        # Connecting and each of the two exchanges have time limits of their own; this one is for the whole.
        patience_s = self._options.connect_timeout_s + 3 * self._options.answer_timeout_s
        while True:
            _end_if_cancelled()
            self.notices.begin_sending()
            try:
                async with asyncio.timeout(patience_s):
                    await self._exchange(client)
            except Exception as error:
                # The client may raise anything that Redis, or a server that pretends to be Redis, can cause.
                self.notices.clear()
                self._beats = None
                await client.connection_pool.disconnect(inuse_connections=False)
                self._stands(problem_of(error))
            else:
                self._stands(None)
            self.first_try.set()
            await asyncio.sleep(_GAP_S)
            pause_s = self._options.heartbeat_interval_s * random.uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311
            try:
                async with asyncio.timeout(pause_s):
                    await self.notices.wait_for_more()
            except TimeoutError:
                continue

    def _stands(self, problem: Problem | None) -> None:
        if problem is None and not self.is_up:
            _log.info("Redis can be used again", url=self._options.url)
        elif problem is not None and (not self._asked or self._reason != problem.reason):
            message = "Redis can't be used; this replicator relies on its own exceptions alone"
            _log.warning(message, reason=problem.reason, problem=problem.message)
        self._asked, self._problem = True, problem
        UP.set(problem is None)

    @property
    def _reason(self) -> str | None:
        return None if self._problem is None else self._problem.reason

    async def _exchange(self, client: redis.asyncio.Redis) -> None:
        """Write a heartbeat, the table and pending notices; read those of the others."""
        neighbours, keys, me = self._neighbours, self._keys, self._neighbours.me
        nodes = sorted(neighbours.nodes)
        asked: Any = client.pipeline(transaction=False)
        asked.time()
        asked.zrange(keys.observers, 0, MAX_OBSERVERS - 1)
        asked.mget([keys.heartbeat(node) for node in (*nodes, me.name)])
        if self._is_new:
            asked.hgetall(keys.failures(me.name))
            asked.get(keys.progress(me.name))
        (seconds, microseconds), observers, beats, *former = await asked.execute()
        redis_s = seconds + microseconds / 1e6
        offset_s = redis_s - neighbours.now()
        if self._is_new:
            neighbours.adopt(rows_of(former[0], offset_s))
            self.recalled = former[1] if isinstance(former[1], str) else None
            self._is_new = False
        alive = self._take_heartbeats(dict(zip(nodes, beats, strict=False)))
        speaking = [node for node in observers if node in alive and not alive[node].cut_off]
        told: Any = client.pipeline(transaction=True)
        notices = self.notices.waiting()
        self._write(told, redis_s, offset_s, notices)
        for observer in speaking:
            told.hgetall(keys.failures(observer))
        answers = await told.execute()
        for notice in notices:
            NOTICES.labels("sent", notice.news.value).inc()
            self.notices.sent(notice)
        self._take_tables({node: alive[node] for node in speaking}, answers[len(answers) - len(speaking) :], offset_s)

    def _write(self, pipe: Any, redis_s: float, offset_s: float, notices: list[Notice]) -> None:
        neighbours, keys, me = self._neighbours, self._keys, self._neighbours.me
        interval_s = neighbours.table.interval_s
        life_ms = int(self._options.heartbeat_interval_s * HEARTBEATS_LIVED * 1000)
        beat = Heartbeat(self._life, me.domain, neighbours.cut_off)
        pipe.set(keys.heartbeat(me.name), heartbeat_text(beat), px=life_ms)
        pipe.delete(keys.failures(me.name))
        rows = neighbours.table.rows(neighbours.now())
        if rows:
            pipe.hset(keys.failures(me.name), mapping=row_texts(rows, offset_s))
            pipe.pexpire(keys.failures(me.name), int(interval_s * 1000))
            pipe.zadd(keys.observers, {me.name: redis_s})
        else:
            pipe.zrem(keys.observers, me.name)
        pipe.zremrangebyscore(keys.observers, "-inf", redis_s - 2 * interval_s)
        progress = self._progress()
        if progress is not None:
            pipe.set(keys.progress(me.name), progress, ex=PROGRESS_LIFE_S)
        for notice in notices:
            pipe.publish(keys.notices, notice_text(notice, me))

    def _take_heartbeats(self, texts: Mapping[str, object]) -> dict[str, Heartbeat]:
        """Note nodes whose heartbeat began or ended; return all that send heartbeats."""
        alive = {node: beat for node, text in texts.items() if (beat := heartbeat_of(text)) is not None}
        before, self._beats = self._beats, alive
        for node, beat in alive.items():
            if before is None or node not in before or before[node].life != beat.life:
                self._neighbours.maybe_back(node)
        # When most of them end at the same moment, Redis has forgotten them.
        ended = [] if before is None else [node for node in before if node not in alive]
        if before is not None and not is_majority(len(ended), len(before)):
            for node in ended:
                self._neighbours.suspect(node)
        return alive

    def _take_tables(self, speaking: Mapping[str, Heartbeat], tables: list[object], offset_s: float) -> None:
        neighbours, now = self._neighbours, self._neighbours.now()
        limit = neighbours.table.limit
        neighbours.opinions.keep(frozenset(speaking))
        for (observer, beat), texts in zip(speaking.items(), tables, strict=True):
            rows = rows_of(texts, offset_s)
            failed = {node: now - row.t_exception for node, row in rows.items() if row.n_exception >= limit}
            known = {node: age_s for node, age_s in failed.items() if node in neighbours.nodes}
            neighbours.opinions.hear(Observer(observer, beat.domain), known, now)
        neighbours.heard()

    # Notices.

    async def _listen(self, client: redis.asyncio.Redis) -> None:
        while True:
            _end_if_cancelled()
            try:
                async with client.pubsub() as pubsub:
                    await pubsub.subscribe(self._keys.notices)
                    # The tables have what was said in the meantime.
                    self.notices.wake()
                    await self._hear(pubsub)
            except Exception as error:
                # A channel that breaks is opened anew; without it the tables are read with every heartbeat.
                _log.debug("the connection for notices from Redis was interrupted", problem=str(error))
            await asyncio.sleep(min(1.0, self._options.heartbeat_interval_s))

    async def _hear(self, pubsub: Any) -> None:
        """Receive notices until the connection fails, or does not answer a ping."""
        heard_at, asked = time.monotonic(), False
        while True:
            _end_if_cancelled()
            message = await pubsub.get_message(timeout=self._options.heartbeat_interval_s)
            if message is not None:
                heard_at, asked = time.monotonic(), False
                if message.get("type") == "message":
                    self._take(message.get("data"))
            elif asked and time.monotonic() - heard_at > self._options.heartbeat_interval_s:
                raise TimeoutError("Redis does not answer on the channel of notices")
            else:
                await pubsub.ping()
                asked = True

    def _take(self, text: object) -> None:
        found = notice_of(text)
        if found is None:
            _log.debug("a notice from Redis has an unknown form", length=len(text) if isinstance(text, str) else None)
            return
        notice, by = found
        NOTICES.labels("received", notice.news.value).inc()
        self._neighbours.hear(notice, by)


def _end_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled.

    The client may take a cancellation for an error of its connection, and raise another error or none.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
