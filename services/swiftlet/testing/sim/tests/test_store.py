"""The simulated device against the in-memory store: the same operations, the same entries and hashes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swiftlet_native import xxh3_64

from swiftlet.errors import DeviceFailed, DiskFull, NotFound, Superseded
from swiftlet.model import Kind, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.store import sethash
from swiftlet.testing.sim.store import SimStore
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import ZERO, Timestamp

DIGESTS = [(n << 12 | n % 2).to_bytes(16, "big") for n in range(4)]
moments = st.integers(1, 6).map(Timestamp.at)
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "post", "type", "reclaim", "remove"]), st.sampled_from(DIGESTS), moments
    ),
    max_size=25,
)


def sim_store() -> SimStore:
    return SimStore(lambda: 0.0, lambda *change: None)


def apply(sim: SimStore, real: MemoryStore, what: str, digest: bytes, moment: Timestamp) -> None:
    key = ObjectKey(0, 0, digest)
    post = PostRecord(moment, {}, *(("text/x", moment) if what == "type" else (None, ZERO)))
    entry = next((e for e in real.entries(0, 0, key.suffix) if e.digest == digest), None)
    if what == "put":
        with suppress(Superseded):
            writer = real.create(key)
            writer.commit(PutRecord(key.hex, moment, "text/plain"), PutFooter(0, "", xxh3_64(b"")))
        with suppress(Superseded):
            sim.put(0, digest, moment, "test")
    elif what == "delete":
        with suppress(Superseded, NotFound):
            real.delete(key, moment, key.hex)
        with suppress(Superseded):
            sim.delete(0, digest, moment, "test")
    elif what in ("post", "type"):
        with suppress(Superseded, NotFound):
            real.post(key, post)
        with suppress(Superseded, NotFound):
            sim.post(0, digest, post, "test")
    elif what == "reclaim":
        real.reclaim(moment)
        sim.reclaim(moment)
    elif entry is not None:
        assert real.remove(key, entry) == sim.remove(0, entry)


@given(steps)
def test_it_holds_what_a_store_holds(history: list[tuple[str, bytes, Timestamp]]) -> None:
    sim, real = sim_store(), MemoryStore()
    for what, digest, moment in history:
        apply(sim, real, what, digest, moment)
    hashes = real.suffix_hashes(0, 0)
    assert sim.suffix_hashes(0) == hashes
    assert sim.root(0) == sethash.root(hashes)
    assert sim.partitions() == ([0] if hashes else [])
    for suffix in ("000", "001"):
        assert sorted(sim.entries(0, (suffix,))) == real.entries(0, 0, suffix)


def test_faults() -> None:
    sim = sim_store()
    sim.put(0, DIGESTS[0], Timestamp.at(1), "test")
    sim.full = True
    with pytest.raises(DiskFull):
        sim.put(0, DIGESTS[1], Timestamp.at(1), "test")
    sim.delete(0, DIGESTS[1], Timestamp.at(1), "test")
    sim.failing = True
    with pytest.raises(DeviceFailed):
        sim.root(0)
    sim.failing = False
    assert {e.kind for e in sim.entries(0, ("000", "001"))} == {Kind.DATA, Kind.TOMBSTONE}
    sim.wipe()
    assert sim.partitions() == []
