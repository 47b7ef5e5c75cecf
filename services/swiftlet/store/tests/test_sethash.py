"""Set hashes depend on the set, on all of it, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from swiftlet.model import Entry, Kind
from swiftlet.store import sethash
from swiftlet.timestamp import MAX_VALUE, Timestamp

timestamps = st.integers(0, MAX_VALUE).map(Timestamp)
entries = st.builds(
    Entry, st.binary(min_size=16, max_size=16), st.sampled_from(Kind), timestamps, timestamps, timestamps
)


@settings(deadline=None)
@given(st.lists(entries, max_size=20))
def test_order_does_not_matter(held: list[Entry]) -> None:
    total = sethash.EMPTY
    for entry in held:
        total = sethash.add(total, entry)
    assert total == sethash.of_entries(reversed(held))
    assert len(sethash.to_bytes(total)) == sethash.HASH_SIZE
    for entry in sorted(held):
        total = sethash.subtract(total, entry)
    assert total == sethash.EMPTY


@settings(deadline=None)
@given(entries)
def test_every_field_counts(entry: Entry) -> None:
    others = [
        replace(entry, digest=bytes((entry.digest[0] ^ 1,)) + entry.digest[1:]),
        replace(entry, kind=Kind.DATA if entry.kind is Kind.TOMBSTONE else Kind.TOMBSTONE),
        replace(entry, timestamp=Timestamp(entry.timestamp.value ^ 1)),
        replace(entry, meta_timestamp=Timestamp(entry.meta_timestamp.value ^ 1)),
        replace(entry, content_type_timestamp=Timestamp(entry.content_type_timestamp.value ^ 1)),
    ]
    assert len({sethash.term(each) for each in (entry, *others)}) == 6


def test_root_knows_suffixes_apart() -> None:
    one, two = bytes(16), b"\1" * 16
    assert sethash.root({"001": one, "002": two}) == sethash.root({"002": two, "001": one})
    assert sethash.root({"001": one, "002": two}) != sethash.root({"001": two, "002": one})
    assert sethash.root({"001": one}) != sethash.root({"001": one, "002": one})
