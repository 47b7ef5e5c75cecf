"""The scenarios of the paper, in one mode, on stores that all modes share.

| scenario | what went before |
|---|---|
| stable | nothing |
| streams open | nothing, but the same replicators have done a round before |
| 1 % of partitions | as above, and an object is new in each of them, on a write quorum each |
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
from swiftlet.placement.quorums import write_quorum

SCENARIOS = ("stable", "streams open", "1 % of partitions", "10 % created", "10 % deleted", "a node down", "it is back")
SMALL, LARGE = b"x" * 100, b"x" * 10_240
_OLD_S = 60.0
"""Seconds that writes lie back: what is younger than a few seconds is left alone."""
_MOST_ROUNDS = 6
_WRITERS = 64
_FAR = 1_000_000_000
"""Numbers of objects from here on are those of single partitions."""


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
    async with subject.keeping() as kept:
        yield await kept.measure("streams open")
        if stable_only:
            return
        yield await _one_percent(kept, turn)
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


async def _one_percent(subject: Subject, turn: int) -> Measured:
    """Put an object into every hundredth partition, and measure the rounds that bring it to its third replica."""
    cluster, quorum = subject.cluster, write_quorum(subject.replicas)
    partitions = set(range(turn, cluster.ring.partition_count, 100))
    numbers = _in_partitions(cluster, partitions, start=_FAR * (turn + 1))
    second = time.time() - _OLD_S
    with ThreadPoolExecutor(_WRITERS) as writers:
        put = [
            writers.submit(cluster.put, number, second, SMALL, cluster.holders(number)[:quorum]) for number in numbers
        ]
    assert all(one.result() for one in put)
    lacking = len(numbers) * (subject.replicas - quorum) * len(SMALL)
    return await subject.measure("1 % of partitions", lacking=lacking, rounds=_MOST_ROUNDS)


def _in_partitions(cluster: Cluster, partitions: set[int], start: int) -> list[int]:
    """Return an object's number for each of these partitions."""
    found: dict[int, int] = {}
    number = start
    while len(found) < len(partitions):
        partition = cluster.key(number).partition
        if partition in partitions:
            found.setdefault(partition, number)
        number += 1
    return list(found.values())
