"""Questions of sessions answered for devices whose servers know no such questions, by the requests that they do know.

Fault model: as any request's; every one of them may fail, and with it the answer. What such a server holds is read
with many requests at different moments, as a session's questions are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from swiftlet.model import Entry
from swiftlet.peers import SyncTransport
from swiftlet.ring.model import Device
from swiftlet.store import sethash
from swiftlet.sync.session.effects import Effect, ReadEntries, ReadRoots, ReadSuffixes
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import UNKNOWN_RING, Reply, Request
from swiftlet.sync.session.responder import answer
from swiftlet.sync.session.roots import EMPTY_ROOT

T = TypeVar("T")

_AT_A_TIME = 4
"""Requests to one device."""


async def answer_for(transport: SyncTransport, device: Device, request: Request) -> Reply:
    """What the device's server would answer, but for `primary`, which it can't say."""
    steps = answer(request, UNKNOWN_RING, lambda partition: False)
    observation: object = None
    while True:
        try:
            effect = steps.send(observation)
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        observation = await _look(transport, device, request.policy, effect)


async def _look(transport: SyncTransport, device: Device, policy: int, effect: Effect) -> object:
    if isinstance(effect, ReadRoots):
        return await _roots(transport, device, policy, effect.partitions)
    if isinstance(effect, ReadSuffixes):
        return await transport.suffix_hashes(device, policy, effect.partition)
    if isinstance(effect, ReadEntries):
        pages = await _all(transport.entries(device, policy, effect.partition, suffix) for suffix in effect.suffixes)
        entries: list[Entry] = [entry for page in pages for entry in page]
        return slice_page(entries, effect.after, effect.limit)
    raise TypeError(f"{type(effect).__name__} is nothing that an answer needs")


async def _roots(transport: SyncTransport, device: Device, policy: int, partitions: tuple[int, ...]) -> list[bytes]:
    held = frozenset(await transport.partitions(device, policy)) if len(partitions) > 1 else frozenset(partitions)
    asked = [partition for partition in partitions if partition in held]
    hashes = await _all(transport.suffix_hashes(device, policy, partition) for partition in asked)
    roots = dict(zip(asked, map(sethash.root, hashes), strict=True))
    return [roots.get(partition, EMPTY_ROOT) for partition in partitions]


async def _all(requests: Iterable[Awaitable[T]]) -> list[T]:
    """The answers, in order; a few requests at a time. The first error ends it."""
    waiting = list(requests)
    found: list[T] = []
    for start in range(0, len(waiting), _AT_A_TIME):
        found += await asyncio.gather(*waiting[start : start + _AT_A_TIME])
    return found
