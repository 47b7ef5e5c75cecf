"""The scenarios of the paper, in one mode, on stores that all modes share.

| scenario | what went before |
|---|---|
| stable | nothing |
| 10 % created | that many new objects on a write quorum each |
| 10 % deleted | the same objects, on a write quorum each |
| a node down | its connections are refused, nobody knows yet |
| it is back | meanwhile 10 % were written anew, 10 KiB each, on the others |

Afterwards everything is equal again, and as many objects are there as before.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from bench.sync.cluster import Cluster
from bench.sync.measure import Measured, Subject
from swiftlet.placement.plan import write_quorum

SCENARIOS = ("stable", "10 % created", "10 % deleted", "a node down", "it is back")
SMALL, LARGE = b"x" * 100, b"x" * 10_240
_OLD_S = 60.0
"""Seconds that writes lie back: what is younger than a few seconds is left alone."""
_MOST_ROUNDS = 6
_WRITERS = 64


def fill(cluster: Cluster, objects: int) -> None:
    """Put objects on all their replicas."""
    second = time.time() - 3600
    _each(range(objects), lambda number: cluster.put(number, second, SMALL, cluster.holders(number)))


def _each(numbers: range, work: Callable[[int], int]) -> int:
    """Do it for each number, some at a time, as stores make what comes together durable together; the sum."""
    with ThreadPoolExecutor(_WRITERS) as writers:
        return sum(writers.map(work, numbers))


async def scenarios(subject: Subject, turn: int, stable_only: bool = False) -> AsyncIterator[Measured]:
    """All of them; `turn` numbers the modes that share the stores."""
    yield await subject.measure("stable")
    if stable_only:
        return
    cluster, replicas, objects = subject.cluster, subject.replicas, subject.objects
    quorum, some, bare = write_quorum(replicas), objects // 10, subject.mode == "batched"

    async def stable_s() -> float:
        return (await subject.measure("stable")).delay_s if bare else 0.0

    before_s = await stable_s()
    new = range(objects * (turn + 1), objects * (turn + 1) + some)
    _each(new, lambda number: cluster.put(number, time.time() - _OLD_S, SMALL, cluster.holders(number)[:quorum]))
    lacking = some * (replicas - quorum) * len(SMALL)
    yield await subject.measure("10 % created", lacking=lacking, rounds=_MOST_ROUNDS, bare=bare, stable_s=before_s)
    before_s = await stable_s()
    _each(new, lambda number: cluster.delete(number, time.time() - _OLD_S / 2, cluster.holders(number)[:quorum]))
    yield await subject.measure("10 % deleted", rounds=_MOST_ROUNDS, bare=bare, stable_s=before_s)
    before_s = await stable_s()
    away = cluster.nodes[-1]
    await away.relay.stop()
    yield await subject.measure("a node down", away=away, stable_s=before_s)

    def write_anew(number: int) -> int:
        up = [device for device in cluster.holders(number) if device.id != away.device.id]
        return cluster.put(number, time.time() - _OLD_S / 2, LARGE, up)

    lacking = (some * replicas - _each(range(some), write_anew)) * len(LARGE)
    await away.relay.start()
    yield await subject.measure("it is back", lacking=lacking, rounds=_MOST_ROUNDS, first=away)
