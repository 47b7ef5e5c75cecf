"""Rows of streams as databases merge them: the same rows, and the same refusals, as by the wire's own reading."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swiftlet.errors import SwiftletError
from swiftlet.listing.container_db import packed
from swiftlet.servers.containers.row_decode import arrived
from swiftlet.transport import row_wire

NUMBERS = st.one_of(
    st.integers(-1, 3), st.sampled_from([1 << 53, (1 << 53) + 1, (1 << 64) - 1, 1 << 64]), st.booleans(), st.none()
)
TEXTS = st.one_of(st.sampled_from(["a", "é", "", "\0", "a\0b", "\0a", "\ud800"]), st.none(), st.just(7))
GOOD = st.tuples(
    st.sampled_from(["o", "é", "\0hidden"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.just("e"),
    st.sampled_from(["t", "text/ü"]),
    st.booleans(),
).map(list)
ANY = st.one_of(
    st.tuples(TEXTS, NUMBERS, NUMBERS, TEXTS, TEXTS, st.sampled_from([True, False, 0, 1, None])).map(list),
    st.just(["o", 1, 1, "e", "t", False, "from a later version"]),
    st.just(["o", 1]),
    st.just("row"),
)


def message(rows: list[Any], later: object = True) -> bytes:
    return b"\n" + json.dumps({"updates": [[7, "d0", 3, "a", "c", later, rows]]}).encode()


def as_objects(data: bytes) -> object:
    try:
        (update,) = row_wire.updates_of(data, None, "")
    except SwiftletError as error:
        return type(error), str(error)
    place = update.number, update.device, update.partition, update.account, update.container, update.later
    grows = not all(row.deleted for row in update.rows)
    return *place, [packed(row.plain) for row in update.rows], grows


def as_packed(data: bytes) -> object:
    try:
        (update,) = arrived(data, None, "")
    except SwiftletError as error:
        return type(error), str(error)
    return tuple(update)


@given(st.lists(st.one_of(GOOD, GOOD, GOOD, ANY), max_size=4), st.sampled_from([True, False, None]))
def test_rows_are_read_as_the_wire_reads_them(rows: list[Any], later: object) -> None:
    data = message(rows, later)
    assert as_packed(data) == as_objects(data)
