"""Decodes messages of row streams for the container server, into rows as the databases merge them.

`swiftlet.transport.row_wire` defines messages, and `swiftlet.transport.listing_wire` rows: rows as proxies send them
pass after a few comparisons here, and all others go through the checks there.

Fault model: as there. One malformed update makes the whole message refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from swiftlet.listing.container_db import packed
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import OFFSET
from swiftlet.timestamp import MAX_VALUE
from swiftlet.transport import row_wire
from swiftlet.transport.listing_wire import MAX_QUANTITY, object_row_from_wire
from swiftlet.transport.signing import ClusterKey


class Arrived(NamedTuple):
    """An update, see `row_wire.Update`; `grows` tells that not all of its rows are removals."""

    number: int
    device: str
    partition: int
    account: str
    container: str
    later: bool
    rows: Sequence[Packed]
    grows: bool


def arrived(data: bytes, key: ClusterKey | None, host: str) -> list[Arrived]:
    """Decode the updates in a message. Raises Unauthorized, WireError and InvalidName."""
    return [_arrived(entry) for entry in row_wire.entries_of(data, key, host)]


def _arrived(entry: object) -> Arrived:
    place, found = row_wire.parts_of(entry)
    rows: list[Packed] = []
    grows = False
    for one in found:
        if type(one) is list and len(one) == 6:
            name, stamp, size, etag, content_type, deleted = one
            if (
                type(name) is type(etag) is type(content_type) is str
                and type(stamp) is type(size) is int
                and deleted is False
                and 0 <= stamp <= MAX_VALUE
                and 0 <= size <= MAX_QUANTITY
                and name
                and "\0" not in name
                and name.isascii()
                and etag.isascii()
                and content_type.isascii()
            ):
                rows.append((name, stamp - OFFSET, size, etag, content_type, None, None, 0))
                grows = True
                continue
        row = object_row_from_wire(one)
        grows = grows or not row.deleted
        rows.append(packed(row.plain))
    return Arrived(*place, rows, grows)
