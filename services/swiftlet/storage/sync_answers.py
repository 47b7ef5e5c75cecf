"""Answers to questions of sync sessions, from one store: bytes in, bytes out, in one go on one of the device's threads.

Roots are made from the store's suffix hashes at each question: a store has those at hand. A server does not know the
objects' rings, so it says of no partition that it is a primary: whoever goes by that gives it nothing and takes nothing
for proved, which is the safe side. Equality of hashes needs no such word.

Fault model: as `swiftlet.sync.session.responder`; a question that makes no sense is a WireError, and changes nothing.
"""

from __future__ import annotations

from swiftlet.model import Entry
from swiftlet.store import sethash
from swiftlet.store.protocol import Store
from swiftlet.sync.session.effects import Effect, ReadEntries, ReadRoots, ReadSuffixes
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import decode_request, encode
from swiftlet.sync.session.responder import answer

UNKNOWN_RING = 0
"""Version of the ring in answers of a server that has none."""


def answer_sync(store: Store, message: bytes) -> bytes:
    """The answer to one question; WireError for what is none. Blocks as the store does."""
    request = decode_request(message)
    steps = answer(request, UNKNOWN_RING, lambda partition: False)
    observation: object = None
    while True:
        try:
            effect = steps.send(observation)
        except StopIteration as end:
            return encode(end.value)
        observation = _look(store, request.policy, effect)


def _look(store: Store, policy: int, effect: Effect) -> object:
    if isinstance(effect, ReadRoots):
        return [sethash.root(store.suffix_hashes(policy, partition)) for partition in effect.partitions]
    if isinstance(effect, ReadSuffixes):
        return store.suffix_hashes(policy, effect.partition)
    if isinstance(effect, ReadEntries):
        entries: list[Entry] = []
        for suffix in effect.suffixes:
            entries += store.entries(policy, effect.partition, suffix)
        return slice_page(entries, effect.after, effect.limit)
    raise TypeError(f"{type(effect).__name__} is nothing that an answer needs")
