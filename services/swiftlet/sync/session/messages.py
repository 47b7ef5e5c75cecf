"""The messages of two devices in a session: values, and their bytes as specified in `docs/sync.md`.

A message is one question or one answer and complete in itself: a lost, repeated or late one does no harm. Whatever
arrives is untrusted until it has been parsed. Every count has a limit, above which `WireError` is raised.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import swiftlet_native

from swiftlet.formats import SAME_RELEASE, other_version
from swiftlet.model import DIGEST_SIZE, Entry, Kind
from swiftlet.store.sethash import HASH_SIZE
from swiftlet.sync.session.wanted import PackedWanted, partitions_of, sizes_of
from swiftlet.sync.session.wanted import Wanted as Wanted
from swiftlet.timestamp import MAX_VALUE, ZERO, Timestamp
from swiftlet.transport.object_messages import MAX_SYNC_MESSAGE
from swiftlet.transport.varints import Cursor, put_varint
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

_SUFFIXES = tuple(f"{number:03x}" for number in range(SUFFIX_COUNT))
_NUMBERS = {suffix: number for number, suffix in enumerate(_SUFFIXES)}
_SUFFIX = struct.Struct(f">H{HASH_SIZE}s")
_ENTRY = struct.Struct(f">{DIGEST_SIZE}sBQ")
_MOMENT = struct.Struct(">Q")
_POSTED = 0x80
"""This bit is set in an entry's kind when its two further timestamps follow."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Asks whether the receiver holds the same in these partitions.

    `hash` is over their roots, or the root itself for a single partition. With `leaves` the receiver answers a
    difference in a single partition with its suffix hashes at once, not with roots.
    """

    policy: int
    ring_version: int
    partitions: tuple[int, ...]
    hash: bytes
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class AskSuffixes:
    """Asks for the suffix hashes of these partitions."""

    policy: int
    ring_version: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskEntries:
    """Asks for the entries of these suffixes that follow the digest `after` in the order of (suffix, digest)."""

    policy: int
    ring_version: int
    partition: int
    suffixes: tuple[str, ...]
    after: bytes | None = None


@dataclass(frozen=True, slots=True)
class AskManyEntries:
    """Asks for the entries of some suffixes in each of several partitions."""

    policy: int
    ring_version: int
    wanted: Sequence[Wanted]


@dataclass(frozen=True, slots=True)
class Equal:
    """Answers that the sender holds the same in all partitions of the question."""

    policy: int
    ring_version: int


@dataclass(frozen=True, slots=True)
class Roots:
    """Answers with the roots of the partitions asked about, in order."""

    policy: int
    ring_version: int
    roots: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SuffixHashes:
    """The suffix hashes of one partition, by suffix; `primary` tells whether the sender's own ring puts the partition
    there.
    """

    partition: int
    primary: bool
    hashes: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Suffixes:
    """Answers with the suffix hashes of the first of the partitions asked for. The asker asks again for the rest."""

    policy: int
    ring_version: int
    found: Sequence[SuffixHashes]


@dataclass(frozen=True, slots=True)
class Entries:
    """Answers with entries in the order of (suffix, digest).

    `more` tells that others follow the last one; `primary` is as in `SuffixHashes`.
    """

    policy: int
    ring_version: int
    primary: bool
    more: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """All wanted entries of one partition, in the order of (suffix, digest); `primary` is as in `SuffixHashes`."""

    partition: int
    primary: bool
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class ManyEntries:
    """Answers with the entries of the first of the wanted partitions, as many as fit completely.

    It is empty when the entries of the first partition alone do not fit.
    """

    policy: int
    ring_version: int
    found: Sequence[Listing]


Request: TypeAlias = Compare | AskSuffixes | AskEntries | AskManyEntries
Reply: TypeAlias = Equal | Roots | Suffixes | Entries | ManyEntries
Message: TypeAlias = Request | Reply

_TYPES: dict[type[Message], int] = {
    Compare: 1,
    AskSuffixes: 2,
    AskEntries: 3,
    AskManyEntries: 4,
    Equal: 17,
    Roots: 18,
    Suffixes: 19,
    Entries: 20,
    ManyEntries: 21,
}


def order_of(digest: bytes) -> tuple[int, bytes]:
    """Return the sort key of the entry with this digest in the order of (suffix, digest)."""
    return (digest[-2] & 0x0F) << 8 | digest[-1], digest


def encode(message: Message) -> bytes:
    """Return the bytes of a message. Raises WireError when it is over a limit."""
    out = bytearray((VERSION, _TYPES[type(message)]))
    put_varint(out, message.policy)
    put_varint(out, message.ring_version)
    if isinstance(message, Compare):
        out += bytes([message.leaves]) + message.hash
        _put_partitions(out, message.partitions)
    elif isinstance(message, AskSuffixes):
        _put_partitions(out, message.partitions)
    elif isinstance(message, AskEntries):
        put_varint(out, message.partition)
        _put_ascending(out, [_NUMBERS[suffix] for suffix in message.suffixes], SUFFIX_COUNT, "suffixes")
        out += b"\0" if message.after is None else b"\1" + message.after
    elif isinstance(message, Roots):
        _check_count(len(message.roots), MAX_PARTITIONS, "roots")
        put_varint(out, len(message.roots))
        out += b"".join(message.roots)
    elif isinstance(message, Suffixes):
        _put_suffixes(out, message)
    elif isinstance(message, Entries):
        _check_count(len(message.entries), MAX_ENTRIES, "entries")
        out.append(message.primary | message.more << 1)
        put_varint(out, len(message.entries))
        for entry in message.entries:
            _put_entry(out, entry)
    elif isinstance(message, AskManyEntries):
        _put_wanted(out, message.wanted)
    elif isinstance(message, ManyEntries):
        _put_listings(out, message.found)
    _check_count(len(out), MAX_MESSAGE, "bytes")
    return bytes(out)


def _put_suffixes(out: bytearray, message: Suffixes) -> None:
    _check_count(sum(len(found.hashes) for found in message.found), MAX_SUFFIX_HASHES, "suffix hashes")
    _check_count(len(message.found), MAX_PARTITIONS, "partitions")
    put_varint(out, len(message.found))
    for found in message.found:
        put_varint(out, found.partition)
        out.append(found.primary)
        put_varint(out, len(found.hashes))
        out += b"".join([_SUFFIX.pack(_NUMBERS[suffix], value) for suffix, value in sorted(found.hashes.items())])


def _put_wanted(out: bytearray, wanted: Sequence[Wanted]) -> None:
    _check_count(sum(sizes_of(wanted)), MAX_WANTED, "suffixes")
    _put_partitions(out, partitions_of(wanted))
    if isinstance(wanted, PackedWanted):
        out += wanted.suffixes
        return
    for one in wanted:
        _put_ascending(out, [_NUMBERS[suffix] for suffix in one.suffixes], SUFFIX_COUNT, "suffixes")


def _put_listings(out: bytearray, found: Sequence[Listing]) -> None:
    _check_count(sum(len(one.entries) for one in found), MAX_ENTRIES, "entries")
    _check_count(len(found), MAX_PARTITIONS, "partitions")
    put_varint(out, len(found))
    for one in found:
        put_varint(out, one.partition)
        out.append(one.primary)
        put_varint(out, len(one.entries))
        for entry in one.entries:
            _put_entry(out, entry)


def _put_entry(out: bytearray, entry: Entry) -> None:
    posted = entry.meta_timestamp != ZERO or entry.content_type_timestamp != ZERO
    out += _ENTRY.pack(entry.digest, entry.kind | (_POSTED if posted else 0), entry.timestamp.value)
    if posted:
        out += _MOMENT.pack(entry.meta_timestamp.value) + _MOMENT.pack(entry.content_type_timestamp.value)


def _put_partitions(out: bytearray, partitions: Sequence[int]) -> None:
    _put_ascending(out, partitions, MAX_PARTITIONS, "partitions")


def _put_ascending(out: bytearray, numbers: Sequence[int], limit: int, what: str) -> None:
    """Append the count, then for each number its distance from the one before, less one."""
    _check_count(len(numbers), limit, what)
    found = swiftlet_native.sync_ascending(numbers)
    if found is None:
        raise WireError(f"the {what} are not in ascending order")
    out += found


def _check_count(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise WireError(f"{count} {what} are more than a message's {limit}")


def policy_of(data: bytes) -> int:
    """Return the policy of a message, whose body is not parsed. Raises WireError."""
    return _begin(_Reader(data))[1]


def decode(data: bytes) -> Message:
    """Return the message with these bytes. Raises WireError for anything that `encode` does not produce."""
    _check_count(len(data), MAX_MESSAGE, "bytes")
    reader = _Reader(data)
    kind, policy = _begin(reader)
    ring_version = reader.varint(MAX_NUMBER)
    message = _decode_body(reader, kind, policy, ring_version)
    if not reader.done:
        raise WireError("a sync message has bytes after its end")
    return message


def _begin(reader: _Reader) -> tuple[int, int]:
    """Return the type and the policy of a message."""
    version, kind = reader.take(2)
    if version != VERSION:
        raise WireError(other_version("a sync message", version, VERSION, SAME_RELEASE))
    return kind, reader.varint(MAX_NUMBER)


def decode_request(data: bytes) -> Request:
    """Return the question with these bytes. Raises WireError as `decode` does, and for an answer."""
    message = decode(data)
    if not isinstance(message, Request):
        raise WireError(f"{type(message).__name__} is an answer, not a question")
    return message


def decode_reply(data: bytes) -> Reply:
    """Return the answer with these bytes. Raises WireError as `decode` does, and for a question."""
    message = decode(data)
    if not isinstance(message, Reply):
        raise WireError(f"{type(message).__name__} is a question, not an answer")
    return message


def _decode_body(reader: _Reader, kind: int, policy: int, ring: int) -> Message:
    if kind == _TYPES[Compare]:
        leaves, value = reader.flags(1) == 1, reader.take(HASH_SIZE)
        return Compare(policy, ring, reader.partitions(), value, leaves)
    if kind == _TYPES[AskSuffixes]:
        return AskSuffixes(policy, ring, reader.partitions())
    if kind == _TYPES[AskEntries]:
        partition = reader.varint(MAX_NUMBER)
        suffixes = reader.suffixes(SUFFIX_COUNT)
        after = reader.take(DIGEST_SIZE) if reader.flags(1) else None
        return AskEntries(policy, ring, partition, suffixes, after)
    if kind == _TYPES[Equal]:
        return Equal(policy, ring)
    if kind == _TYPES[Roots]:
        roots = reader.take(reader.count(MAX_PARTITIONS, "roots") * HASH_SIZE)
        return Roots(policy, ring, struct.unpack(f"{HASH_SIZE}s" * (len(roots) // HASH_SIZE), roots))
    if kind == _TYPES[Suffixes]:
        return _decode_suffixes(reader, policy, ring)
    if kind == _TYPES[Entries]:
        flags = reader.flags(3)
        count = reader.count(MAX_ENTRIES, "entries")
        entries = tuple(reader.entry() for _ in range(count))
        return Entries(policy, ring, bool(flags & 1), bool(flags & 2), entries)
    if kind == _TYPES[AskManyEntries]:
        return AskManyEntries(policy, ring, _decode_wanted(reader))
    if kind == _TYPES[ManyEntries]:
        return ManyEntries(policy, ring, _decode_listings(reader))
    raise WireError(f"a sync message has the unknown type {kind}")


def _decode_suffixes(reader: _Reader, policy: int, ring: int) -> Suffixes:
    found = []
    left = MAX_SUFFIX_HASHES
    for _ in range(reader.count(MAX_PARTITIONS, "partitions")):
        partition, primary = reader.varint(MAX_NUMBER), reader.flags(1) == 1
        count = reader.count(min(left, SUFFIX_COUNT), "suffix hashes")
        left -= count
        raw = reader.take(count * _SUFFIX.size)
        try:
            hashes: dict[str, bytes] = {_SUFFIXES[number]: value for number, value in _SUFFIX.iter_unpack(raw)}
        except IndexError as error:
            raise WireError(f"a suffix is above {SUFFIX_COUNT - 1}, the highest one") from error
        if len(hashes) != count:
            raise WireError(f"a suffix comes twice in partition {partition}")
        found.append(SuffixHashes(partition, primary, hashes))
    return Suffixes(policy, ring, tuple(found))


def _decode_wanted(reader: _Reader) -> tuple[Wanted, ...]:
    left = MAX_WANTED
    wanted = []
    for partition in reader.partitions():
        wanted.append(Wanted(partition, reader.suffixes(min(left, SUFFIX_COUNT))))
        left -= len(wanted[-1].suffixes)
    return tuple(wanted)


def _decode_listings(reader: _Reader) -> tuple[Listing, ...]:
    left = MAX_ENTRIES
    found = []
    for _ in range(reader.count(MAX_PARTITIONS, "partitions")):
        partition, primary = reader.varint(MAX_NUMBER), reader.flags(1) == 1
        count = reader.count(left, "entries")
        left -= count
        found.append(Listing(partition, primary, tuple(reader.entry() for _ in range(count))))
    return tuple(found)


class _Reader(Cursor):
    """Takes a message apart; raises WireError where it ends early or has a value that is not allowed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, "a sync message")

    def count(self, limit: int, what: str) -> int:
        value = self.varint(MAX_NUMBER)
        _check_count(value, limit, what)
        return value

    def partitions(self) -> tuple[int, ...]:
        return tuple(self.ascending(MAX_PARTITIONS, MAX_NUMBER, "partitions"))

    def suffixes(self, limit: int) -> tuple[str, ...]:
        return tuple([_SUFFIXES[number] for number in self.ascending(limit, SUFFIX_COUNT - 1, "suffixes")])

    def ascending(self, limit: int, highest: int, what: str) -> list[int]:
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
