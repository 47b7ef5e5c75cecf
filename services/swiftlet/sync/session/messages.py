"""The messages of two devices in a session: values, and their bytes as specified in `docs/sync.md`.

A message is one question or one answer and complete in itself: a lost, repeated or late one does no harm. Whatever
arrives is untrusted until it has been parsed. Every count has a limit, above which `WireError` is raised.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from swiftlet.formats import SAME_RELEASE, other_version
from swiftlet.model import DIGEST_SIZE, Entry
from swiftlet.store.sethash import HASH_SIZE
from swiftlet.sync.session.encoding import (
    MAX_ENTRIES,
    MAX_MESSAGE,
    MAX_NUMBER,
    MAX_PARTITIONS,
    MAX_SUFFIX_HASHES,
    MAX_WANTED,
    NUMBERS,
    SUFFIX,
    SUFFIX_COUNT,
    SUFFIXES,
    VERSION,
    Reader,
    check_count,
    put_ascending,
    put_entry,
    put_partitions,
)
from swiftlet.sync.session.encoding import UNKNOWN_RING as UNKNOWN_RING
from swiftlet.sync.session.pair_messages import (
    Branches,
    ComparePair,
    branches,
    compare_pair,
    put_branches,
    put_compare_pair,
)
from swiftlet.sync.session.wanted import PackedWanted, partitions_of, sizes_of
from swiftlet.sync.session.wanted import Wanted as Wanted
from swiftlet.transport.varints import put_varint
from swiftlet.transport.wire import WireError


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


Request: TypeAlias = Compare | AskSuffixes | AskEntries | AskManyEntries | ComparePair
Reply: TypeAlias = Equal | Roots | Suffixes | Entries | ManyEntries | Branches
Message: TypeAlias = Request | Reply

_TYPES: dict[type[Message], int] = {
    Compare: 1,
    AskSuffixes: 2,
    AskEntries: 3,
    AskManyEntries: 4,
    ComparePair: 5,
    Equal: 17,
    Roots: 18,
    Suffixes: 19,
    Entries: 20,
    ManyEntries: 21,
    Branches: 22,
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
        put_partitions(out, message.partitions)
    elif isinstance(message, AskSuffixes):
        put_partitions(out, message.partitions)
    elif isinstance(message, AskEntries):
        put_varint(out, message.partition)
        put_ascending(out, [NUMBERS[suffix] for suffix in message.suffixes], SUFFIX_COUNT, "suffixes")
        out += b"\0" if message.after is None else b"\1" + message.after
    elif isinstance(message, Roots):
        check_count(len(message.roots), MAX_PARTITIONS, "roots")
        put_varint(out, len(message.roots))
        out += b"".join(message.roots)
    elif isinstance(message, Suffixes):
        _put_suffixes(out, message)
    elif isinstance(message, Entries):
        check_count(len(message.entries), MAX_ENTRIES, "entries")
        out.append(message.primary | message.more << 1)
        put_varint(out, len(message.entries))
        for entry in message.entries:
            put_entry(out, entry)
    elif isinstance(message, AskManyEntries):
        _put_wanted(out, message.wanted)
    elif isinstance(message, ManyEntries):
        _put_listings(out, message.found)
    elif isinstance(message, ComparePair):
        put_compare_pair(out, message)
    elif isinstance(message, Branches):
        put_branches(out, message)
    check_count(len(out), MAX_MESSAGE, "bytes")
    return bytes(out)


def _put_suffixes(out: bytearray, message: Suffixes) -> None:
    check_count(sum(len(found.hashes) for found in message.found), MAX_SUFFIX_HASHES, "suffix hashes")
    check_count(len(message.found), MAX_PARTITIONS, "partitions")
    put_varint(out, len(message.found))
    for found in message.found:
        put_varint(out, found.partition)
        out.append(found.primary)
        put_varint(out, len(found.hashes))
        out += b"".join([SUFFIX.pack(NUMBERS[suffix], value) for suffix, value in sorted(found.hashes.items())])


def _put_wanted(out: bytearray, wanted: Sequence[Wanted]) -> None:
    check_count(sum(sizes_of(wanted)), MAX_WANTED, "suffixes")
    put_partitions(out, partitions_of(wanted))
    if isinstance(wanted, PackedWanted):
        out += wanted.suffixes
        return
    for one in wanted:
        put_ascending(out, [NUMBERS[suffix] for suffix in one.suffixes], SUFFIX_COUNT, "suffixes")


def _put_listings(out: bytearray, found: Sequence[Listing]) -> None:
    check_count(sum(len(one.entries) for one in found), MAX_ENTRIES, "entries")
    check_count(len(found), MAX_PARTITIONS, "partitions")
    put_varint(out, len(found))
    for one in found:
        put_varint(out, one.partition)
        out.append(one.primary)
        put_varint(out, len(one.entries))
        for entry in one.entries:
            put_entry(out, entry)


def policy_of(data: bytes) -> int:
    """Return the policy of a message, whose body is not parsed. Raises WireError."""
    return _begin(Reader(data))[1]


def decode(data: bytes) -> Message:
    """Return the message with these bytes. Raises WireError for anything that `encode` does not produce."""
    check_count(len(data), MAX_MESSAGE, "bytes")
    reader = Reader(data)
    kind, policy = _begin(reader)
    ring_version = reader.varint(MAX_NUMBER)
    message = _decode_body(reader, kind, policy, ring_version)
    if not reader.done:
        raise WireError("a sync message has bytes after its end")
    return message


def _begin(reader: Reader) -> tuple[int, int]:
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


def _decode_body(reader: Reader, kind: int, policy: int, ring: int) -> Message:
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
    if kind == _TYPES[ComparePair]:
        return compare_pair(reader, policy, ring)
    if kind == _TYPES[Branches]:
        return branches(reader, policy, ring)
    raise WireError(f"a sync message has the unknown type {kind}")


def _decode_suffixes(reader: Reader, policy: int, ring: int) -> Suffixes:
    found = []
    left = MAX_SUFFIX_HASHES
    for _ in range(reader.count(MAX_PARTITIONS, "partitions")):
        partition, primary = reader.varint(MAX_NUMBER), reader.flags(1) == 1
        count = reader.count(min(left, SUFFIX_COUNT), "suffix hashes")
        left -= count
        raw = reader.take(count * SUFFIX.size)
        try:
            hashes: dict[str, bytes] = {SUFFIXES[number]: value for number, value in SUFFIX.iter_unpack(raw)}
        except IndexError as error:
            raise WireError(f"a suffix is above {SUFFIX_COUNT - 1}, the highest one") from error
        if len(hashes) != count:
            raise WireError(f"a suffix comes twice in partition {partition}")
        found.append(SuffixHashes(partition, primary, hashes))
    return Suffixes(policy, ring, tuple(found))


def _decode_wanted(reader: Reader) -> tuple[Wanted, ...]:
    left = MAX_WANTED
    wanted = []
    for partition in reader.partitions():
        wanted.append(Wanted(partition, reader.suffixes(min(left, SUFFIX_COUNT))))
        left -= len(wanted[-1].suffixes)
    return tuple(wanted)


def _decode_listings(reader: Reader) -> tuple[Listing, ...]:
    left = MAX_ENTRIES
    found = []
    for _ in range(reader.count(MAX_PARTITIONS, "partitions")):
        partition, primary = reader.varint(MAX_NUMBER), reader.flags(1) == 1
        count = reader.count(left, "entries")
        left -= count
        found.append(Listing(partition, primary, tuple(reader.entry() for _ in range(count))))
    return tuple(found)
