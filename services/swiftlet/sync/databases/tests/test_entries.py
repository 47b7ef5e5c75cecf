"""Databases in the terms of sessions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.model import DatabaseId, DatabaseKind, Entry, Kind, ObjectKey
from swiftlet.store import sethash
from swiftlet.sync.databases.entries import POLICIES, database_of, entry_of, fingerprint_of, kind_of, ring_name
from swiftlet.sync.databases.transfer_rules import DatabaseTransferRules
from swiftlet.sync.session.compare import Need
from swiftlet.sync.session.messages import Entries, decode, encode
from swiftlet.timestamp import MAX_VALUE, Timestamp
from swiftlet.transport.wire import WireError

DIGEST = bytes(range(16))
sixteen = st.binary(min_size=16, max_size=16)


@given(sixteen, sixteen)
def test_a_fingerprint_travels_as_an_entry(digest: bytes, fingerprint: bytes) -> None:
    entry = entry_of(digest, fingerprint)
    message = Entries(POLICIES[DatabaseKind.CONTAINER], 7, True, False, (entry,))
    assert decode(encode(message)) == message
    assert fingerprint_of(entry) == fingerprint


@given(sixteen, sixteen)
def test_different_fingerprints_have_different_set_hashes(one: bytes, other: bytes) -> None:
    same = sethash.of_entries([entry_of(DIGEST, one)]) == sethash.of_entries([entry_of(DIGEST, other)])
    assert same == (one == other)


def test_what_is_no_fingerprint_is_refused() -> None:
    with pytest.raises(WireError):
        fingerprint_of(Entry(DIGEST, Kind.DATA, Timestamp(MAX_VALUE)))
    with pytest.raises(WireError, match="not the number of a ring of databases"):
        kind_of(0)


def test_rings_of_databases_have_policies_of_their_own() -> None:
    for kind, policy in POLICIES.items():
        assert policy > 0xFFFF, "more than any storage policy's index"
        assert kind_of(policy) is kind
        assert database_of(ObjectKey(policy, 3, DIGEST)) == DatabaseId(kind, 3, DIGEST)
    assert [ring_name(policy) for policy in sorted(POLICIES.values())] == ["account", "container"]


MINE, THEIRS, COMMON = (entry_of(bytes([n]) * 16, bytes([n]) * 16) for n in (1, 2, 3))
OURS_OF_ONE, THEIRS_OF_ONE = entry_of(DIGEST, b"o" * 16), entry_of(DIGEST, b"t" * 16)


def test_what_differs_is_fetched_where_anything_is() -> None:
    rules = DatabaseTransferRules()
    here, there = [MINE, COMMON, OURS_OF_ONE], [THEIRS, COMMON, THEIRS_OF_ONE]
    pushed = rules.there(here, there, pull=True)
    assert [(push.entry, push.need, push.fresh) for push in pushed] == [(MINE, Need.ROWS, True)]
    pulled = rules.here(there, here)
    assert [(push.entry, push.fresh) for push in pulled] == [(THEIRS, True), (THEIRS_OF_ONE, False)]
    pushed = rules.there(here, there, pull=False)
    assert [(push.entry, push.fresh) for push in pushed] == [(MINE, True), (OURS_OF_ONE, False)]
    assert all(rules.is_due(push, 0.0, 0.0) for push in pushed)


def test_a_handoff_is_returned_by_proof_or_by_deed() -> None:
    rules = DatabaseTransferRules()
    assert rules.is_returned(OURS_OF_ONE, OURS_OF_ONE, False, 0.0)
    assert not rules.is_returned(OURS_OF_ONE, THEIRS_OF_ONE, False, 0.0)
    assert not rules.is_returned(OURS_OF_ONE, None, False, 0.0)
    assert rules.is_returned(OURS_OF_ONE, THEIRS_OF_ONE, True, 0.0)
