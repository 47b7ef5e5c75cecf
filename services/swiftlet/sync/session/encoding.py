"""How the parts of a message are encoded: numbers, partitions, suffixes, entries, and their limits.

Fault model: what arrives is untrusted. Every count has a limit, above which `WireError` is raised.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import swiftlet_native

from swiftlet.model import DIGEST_SIZE, Entry, Kind
from swiftlet.store.sethash import HASH_SIZE
from swiftlet.timestamp import MAX_VALUE, ZERO, Timestamp
from swiftlet.transport.object_messages import MAX_SYNC_MESSAGE
from swiftlet.transport.varints import Cursor
from swiftlet.transport.wire import WireError

VERSION = 1
"""Version of the encoding; a receiver refuses others."""
MAX_MESSAGE = MAX_SYNC_MESSAGE
"""Bytes of a whole message."""
MAX_PARTITIONS = 4096
"""Partitions in one message."""
MAX_NUMBER = (1 << 32) - 1
"""The highest number of a policy, a ring's version or a partition."""
SUFFIX_COUNT = 4096
"""Suffixes that a partition can have."""
MAX_SUFFIX_HASHES = 8192
"""Suffix hashes in one answer; enough for those of a whole partition."""
MAX_ENTRIES = 4096
"""Entries in one answer."""
MAX_WANTED = 8192
"""Suffixes in one question about the entries of many partitions."""
UNKNOWN_RING = 0
"""The ring version that a server gives when it has no ring with its device: then `primary` means nothing."""

SUFFIXES = tuple(f"{number:03x}" for number in range(SUFFIX_COUNT))
"""The suffixes by their numbers."""
NUMBERS = {suffix: number for number, suffix in enumerate(SUFFIXES)}
"""The numbers of suffixes."""
SUFFIX = struct.Struct(f">H{HASH_SIZE}s")
"""The encoding of a suffix and its set hash."""
_ENTRY = struct.Struct(f">{DIGEST_SIZE}sBQ")
_MOMENT = struct.Struct(">Q")
_POSTED = 0x80
"""This bit is set in an entry's kind when its two further timestamps follow."""


def put_entry(out: bytearray, entry: Entry) -> None:
    """Append an entry; timestamps of a POST only where it has them."""
    posted = entry.meta_timestamp != ZERO or entry.content_type_timestamp != ZERO
    out += _ENTRY.pack(entry.digest, entry.kind | (_POSTED if posted else 0), entry.timestamp.value)
    if posted:
        out += _MOMENT.pack(entry.meta_timestamp.value) + _MOMENT.pack(entry.content_type_timestamp.value)


def put_partitions(out: bytearray, partitions: Sequence[int]) -> None:
    """Append ascending partitions. Raises WireError when they do not ascend, or are too many."""
    put_ascending(out, partitions, MAX_PARTITIONS, "partitions")


def put_ascending(out: bytearray, numbers: Sequence[int], limit: int, what: str) -> None:
    """Append the count, then for each number its distance from the one before, less one."""
    check_count(len(numbers), limit, what)
    found = swiftlet_native.sync_ascending(numbers)
    if found is None:
        raise WireError(f"the {what} are not in ascending order")
    out += found


def check_count(count: int, limit: int, what: str) -> None:
    """Raise WireError when there are more than `limit`."""
    if count > limit:
        raise WireError(f"{count} {what} are more than a message's {limit}")


class Reader(Cursor):
    """Takes a message apart; raises WireError where it ends early or has a value that is not allowed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "a sync message")

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(len(self._data) - self._at)

    def count(self, limit: int, what: str) -> int:
        """Return a count of at most `limit`."""
        value = self.varint(MAX_NUMBER)
        check_count(value, limit, what)
        return value

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that come next, which have to ascend."""
        return tuple(self.ascending(MAX_PARTITIONS, MAX_NUMBER, "partitions"))

    def suffixes(self, limit: int) -> tuple[str, ...]:
        """Return up to `limit` ascending suffixes."""
        return tuple([SUFFIXES[number] for number in self.ascending(limit, SUFFIX_COUNT - 1, "suffixes")])

    def ascending(self, limit: int, highest: int, what: str) -> list[int]:
        """Return up to `limit` ascending numbers, none of them above `highest`."""
        numbers: list[int] = []
        last = -1
        data, end = self._data, len(self._data)
        for _ in range(self.count(limit, what)):
            if self._at < end and data[self._at] < 0x80:
                # Nearly all numbers take this short path, and there are many of them.
                last += 1 + data[self._at]
                self._at += 1
            else:
                last += 1 + self.varint(MAX_NUMBER)
            if last > highest:
                raise WireError(f"{last} is above {highest}, the highest of {what}")
            numbers.append(last)
        return numbers

    def entry(self) -> Entry:
        """Return the next entry."""
        digest, kind, value = _ENTRY.unpack(self.take(_ENTRY.size))
        meta = content_type = 0
        if kind & _POSTED:
            (meta,) = _MOMENT.unpack(self.take(_MOMENT.size))
            (content_type,) = _MOMENT.unpack(self.take(_MOMENT.size))
        if kind & ~_POSTED not in (Kind.DATA, Kind.TOMBSTONE):
            raise WireError(f"{kind} is not a kind of entry")
        if max(value, meta, content_type) > MAX_VALUE:
            raise WireError("a timestamp in a sync message is out of range")
        return Entry(digest, Kind(kind & ~_POSTED), Timestamp(value), Timestamp(meta), Timestamp(content_type))
