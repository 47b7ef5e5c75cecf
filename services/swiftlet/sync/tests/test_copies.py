"""Bringing one object: what came to the target in the meantime stays, and no POST is left behind for it."""

from __future__ import annotations

import pytest

from swiftlet.errors import Superseded
from swiftlet.model import Entry, Kind, ObjectKey, PostRecord, PutRecord
from swiftlet.ring.model import Device
from swiftlet.store.protocol import Store
from swiftlet.sync.moving.copies import bring
from swiftlet.sync.session.compare import Need, Push
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.store.conformance import NAME, footer_of, key_of
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import ZERO, Timestamp

OLD, NEW, POSTED, LATER = map(Timestamp.at, (5, 7, 9, 11))
HERE, THERE = (Device(number, f"s{number}", f"h{number}", 1, "d", "r", "z", f"h{number}", 1.0) for number in range(2))
KEY = key_of(1)


def put(store: Store, timestamp: Timestamp, body: bytes) -> ObjectKey:
    writer = store.create(KEY)
    writer.write(body)
    writer.commit(PutRecord(f"{NAME}1", timestamp, "text/plain", {"of": "put"}), footer_of(body))
    return KEY


async def overtaken(here: Store, there: Store, compared: Entry) -> None:
    transport = MemoryObjectTransport({HERE.address: here, THERE.address: there}, patience_s=0.0)
    with pytest.raises(Superseded):
        await bring(transport, HERE, THERE, KEY, Push(compared, Need.DATA, True))


async def test_a_post_to_older_data_comes_to_newer_data_that_came_first() -> None:
    here, there = MemoryStore(), MemoryStore()
    put(here, OLD, b"old")
    here.post(KEY, PostRecord(POSTED, {"of": "post"}))
    put(there, NEW, b"newer")
    await overtaken(here, there, Entry(KEY.digest, Kind.DATA, OLD, POSTED, ZERO))
    found = there.stat(KEY)
    assert (found.timestamp, found.meta_timestamp) == (NEW, POSTED)
    assert found.metadata == {"of": "post"}
    assert found.size == len(b"newer")


@pytest.mark.parametrize("posted", [None, POSTED])
async def test_what_is_newer_there_stays_as_it_is(posted: Timestamp | None) -> None:
    here, there = MemoryStore(), MemoryStore()
    put(here, OLD, b"old")
    if posted is not None:
        here.post(KEY, PostRecord(posted, {"of": "post"}))
    put(there, LATER, b"newer")
    before = there.stat(KEY)
    await overtaken(here, there, Entry(KEY.digest, Kind.DATA, OLD, posted or ZERO, ZERO))
    assert there.stat(KEY) == before
