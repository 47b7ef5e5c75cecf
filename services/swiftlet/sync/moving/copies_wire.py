"""Encodes copies of many objects in one message: the question to the device that has them, and what the other one is
given.

"Copies" in `docs/sync.md` specifies the bytes; `native/crates/store/src/copies.rs` reads and writes them too. Whoever
brings copies from one device to the other passes them on as they are, and reads only the head of the message.

Fault model: anything may arrive, and every count has a limit: beyond it `WireError` is raised, and nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swiftlet.errors import SwiftletError
from swiftlet.model import DIGEST_SIZE, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.native_values import delete_at, raw, raw_pairs, text, text_pairs
from swiftlet.sync.session.encoding import MAX_NUMBER
from swiftlet.timestamp import MAX_VALUE, ZERO, Timestamp
from swiftlet.transport.sync_wire import MAX_PAYLOAD
from swiftlet.transport.varints import Cursor, put_varint
from swiftlet.transport.wire import WireError, error_from_wire, error_to_wire

MAX_OBJECTS = 256
"""The largest number of objects in one question, and of copies in one message."""
MAX_BYTES = MAX_PAYLOAD - 16384
"""Bytes of copies in one answer; a message has room for its head before them, and for tombstones behind them."""
ALONE_BYTES = 256 * 1024
"""Objects with more data than this travel alone: beside that much data the cost of another request is small."""
MAX_POLICY = (1 << 16) - 1
_DATA, _TOMBSTONE, _METADATA = 1, 2, 3
_POSTED = 0x80
_LATER, _ALONE, _GIVEN = 0, 1, 2
_TAKEN, _CHANGED, _REFUSED = 0, 1, 2
_WHAT = "a message about copies"
_MAX_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that is requested: all of it, or its newest POST alone."""

    partition: int
    digest: bytes
    metadata_alone: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A device's answer to a request for copies."""

    copies: bytes
    """The encoded copies, which are handed on as they are."""
    sizes: Sequence[int | None]
    """For each wanted object the bytes of its data; None if it is not among the copies and has to travel alone."""

    later: int
    """How many of the last objects did not fit and may be requested again; `sizes` is about those before them."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy as it arrived; a tombstone when it has neither `put` nor `post`."""

    key: ObjectKey
    timestamp: Timestamp
    put: tuple[PutRecord, PutFooter, bytes] | None = None
    post: PostRecord | None = None


def wanted_bytes(policy: int, wanted: Iterable[Wanted]) -> bytes:
    """Encode the question for copies of what is wanted."""
    out = bytearray()
    put_varint(out, policy)
    for one in wanted:
        out.append(_METADATA if one.metadata_alone else _DATA)
        put_varint(out, one.partition)
        out += one.digest
    return bytes(out)


def wanted_from(data: bytes) -> tuple[int, list[Wanted]]:
    """Decode the policy and the objects of a question; WireError."""
    cursor = Cursor(data, _WHAT)
    policy = cursor.varint(MAX_POLICY)
    wanted: list[Wanted] = []
    while not cursor.done:
        if len(wanted) == MAX_OBJECTS:
            raise WireError(f"more than {MAX_OBJECTS} objects are requested at once; request fewer")
        kind = cursor.take(1)[0]
        if kind not in (_DATA, _METADATA):
            raise WireError(f"{kind} is not a kind of copy that can be requested")
        wanted.append(Wanted(cursor.varint(MAX_NUMBER), cursor.take(DIGEST_SIZE), kind == _METADATA))
    return policy, wanted


def tombstone_bytes(partition: int, digest: bytes, timestamp: Timestamp) -> bytes:
    """Encode the tombstone of an object as a copy."""
    out = bytearray([_TOMBSTONE])
    put_varint(out, partition)
    return bytes(out) + digest + timestamp.value.to_bytes(8, "big")


def copies_bytes(policy: int, copies: Iterable[bytes]) -> bytes:
    """Encode a message of copies that `copy_bytes` and `tombstone_bytes` encoded."""
    out = bytearray()
    put_varint(out, policy)
    return bytes(out) + b"".join(copies)


def copy_bytes(key: ObjectKey, info: ObjectInfo, data: bytes | None) -> bytes:
    """Encode a copy of an object; `data` is None for a copy of its newest POST only."""
    posted = info.meta_timestamp > info.timestamp or info.content_type_timestamp > info.timestamp
    out = bytearray([(_METADATA if data is None else _DATA) | (_POSTED if posted else 0)])
    put_varint(out, key.partition)
    out += key.digest
    out += info.timestamp.value.to_bytes(8, "big")
    if posted:
        out += info.meta_timestamp.value.to_bytes(8, "big")
        out += info.content_type_timestamp.value.to_bytes(8, "big")
    put_varint(out, delete_at(info.metadata))
    _put_bytes(out, raw(info.content_type))
    _put_pairs(out, info.metadata)
    if data is not None:
        _put_pairs(out, info.sysmeta)
        _put_bytes(out, raw(info.name))
        _put_bytes(out, raw(info.etag))
        assert info.xxh3 is not None, "copies are whole objects"
        out += info.xxh3.to_bytes(8, "big")
        _put_bytes(out, data)
    return bytes(out)


def _put_bytes(out: bytearray, data: bytes) -> None:
    put_varint(out, len(data))
    out += data


def _put_pairs(out: bytearray, texts: Mapping[str, str]) -> None:
    pairs = raw_pairs(texts)
    put_varint(out, len(pairs))
    for name, value in pairs:
        _put_bytes(out, name)
        _put_bytes(out, value)


def copies_from(data: bytes) -> list[Copy]:
    """Decode the copies of a message; WireError."""
    cursor = _Cursor(data, _WHAT)
    policy = cursor.varint(MAX_POLICY)
    found: list[Copy] = []
    while not cursor.done:
        if len(found) == MAX_OBJECTS:
            raise WireError(f"more than {MAX_OBJECTS} copies are sent at once; send fewer")
        found.append(_copy(cursor, policy))
    return found


class _Cursor(Cursor):
    def moment(self) -> Timestamp:
        value = int.from_bytes(self.take(8), "big")
        if value > MAX_VALUE:
            raise WireError(f"a timestamp in {_WHAT} is out of range")
        return Timestamp(value)

    def text(self) -> str:
        try:
            return text(self.bytes(MAX_PAYLOAD))
        except UnicodeDecodeError as error:
            raise WireError(f"a text in {_WHAT} is not UTF-8") from error

    def texts(self) -> dict[str, str]:
        try:
            count = self.varint(MAX_PAYLOAD)
            return text_pairs([(self.bytes(MAX_PAYLOAD), self.bytes(MAX_PAYLOAD)) for _ in range(count)])
        except UnicodeDecodeError as error:
            raise WireError(f"a text in {_WHAT} is not UTF-8") from error


def _copy(cursor: _Cursor, policy: int) -> Copy:
    head = cursor.take(1)[0]
    kind, posted = head & ~_POSTED, bool(head & _POSTED)
    key = ObjectKey(policy, cursor.varint(MAX_NUMBER), cursor.take(DIGEST_SIZE))
    timestamp = cursor.moment()
    if not (kind == _DATA or (kind == _METADATA and posted) or (kind == _TOMBSTONE and not posted)):
        raise WireError(f"{head} is not a kind of copy")
    if kind == _TOMBSTONE:
        return Copy(key, timestamp)
    meta_timestamp, type_timestamp = (cursor.moment(), cursor.moment()) if posted else (ZERO, ZERO)
    cursor.varint(_MAX_64)  # The time at which the object expires, which stands in its metadata too.
    content_type, metadata = cursor.text(), cursor.texts()
    post = put = None
    if posted:
        own_type = type_timestamp > timestamp
        kept = (content_type, type_timestamp) if own_type else (None, ZERO)
        post = PostRecord(meta_timestamp, metadata, *kept)
    if kind == _DATA:
        sysmeta, name, etag = cursor.texts(), cursor.text(), cursor.text()
        xxh3 = int.from_bytes(cursor.take(8), "big")
        data = cursor.bytes(MAX_PAYLOAD)
        put = (PutRecord(name, timestamp, content_type, metadata, sysmeta), PutFooter(len(data), etag, xxh3), data)
    return Copy(key, timestamp, put, post)


@dataclass(slots=True)
class Giving:
    """An answer that is being encoded."""

    policy: int
    _codes: bytearray = field(default_factory=bytearray)
    _copies: list[bytes] = field(default_factory=list)
    _size: int = 0
    _count: int = 0
    full: bool = False
    """Whether nothing more fits, so that all following objects have to be requested again."""

    def give(self, copy: bytes | None, size: int = 0) -> None:
        """Add the next object: a copy with so many bytes of data, or None for one that travels alone."""
        self._count += 1
        if copy is not None and self._size + len(copy) > MAX_BYTES:
            self.full = bool(self._copies)
            copy = None
        if self.full:
            self._codes.append(_LATER)
        elif copy is None:
            self._codes.append(_ALONE)
        else:
            put_varint(self._codes, _GIVEN + size)
            self._copies.append(copy)
            self._size += len(copy)

    def answer(self) -> bytes:
        """Return the answer as bytes."""
        out = bytearray()
        put_varint(out, self._count)
        return bytes(out + self._codes) + copies_bytes(self.policy, self._copies)


def given_from(data: bytes, wanted: int) -> Given:
    """Decode the answer to a question about so many objects; WireError."""
    cursor = Cursor(data, _WHAT)
    if cursor.varint(MAX_OBJECTS) != wanted:
        raise WireError(f"{_WHAT} is not about as many objects as were requested")
    codes = data[cursor.at : cursor.at + wanted]
    if len(codes) == wanted and codes and _GIVEN <= min(codes) <= max(codes) < 0x80:
        # The usual answer: all objects are small, and all of them are there.
        return Given(data[cursor.at + wanted :], [code - _GIVEN for code in codes], 0)
    sizes: list[int | None] = []
    later = 0
    for _ in range(wanted):
        code = cursor.varint(_GIVEN + MAX_PAYLOAD)
        if code == _LATER:
            later += 1
        elif later:
            raise WireError(f"{_WHAT} has a copy after one that did not fit")
        else:
            sizes.append(None if code == _ALONE else code - _GIVEN)
    if later == wanted and wanted:
        raise WireError(f"{_WHAT} has no copy at all")
    return Given(data[cursor.at :], sizes, later)


class Changed(SwiftletError):
    """The device has something newer, or no longer has what was to be changed."""


def outcomes_bytes(outcomes: Iterable[SwiftletError | None]) -> bytes:
    """Encode the outcomes of copies: None for a durable one, `Changed`, or the reason of a refusal."""
    out = bytearray()
    for outcome in outcomes:
        if outcome is None:
            out.append(_TAKEN)
        elif isinstance(outcome, Changed):
            out.append(_CHANGED)
        else:
            fields = error_to_wire(outcome)[1]
            out.append(_REFUSED)
            _put_bytes(out, raw(fields["error"]))
            _put_bytes(out, raw(fields["message"]))
    return bytes(out)


def outcomes_from(data: bytes, copies: int) -> list[SwiftletError | None]:
    """Decode the outcomes of so many copies, the inverse of `outcomes_bytes`; WireError."""
    if data == bytes(copies):
        return [None] * copies
    cursor = _Cursor(data, _WHAT)
    outcomes: list[SwiftletError | None] = []
    for _ in range(copies):
        code = cursor.take(1)[0]
        if code > _REFUSED:
            raise WireError(f"{code} is not an outcome of a copy")
        if code == _REFUSED:
            outcomes.append(error_from_wire(500, {"error": cursor.text(), "message": cursor.text()}))
        else:
            outcomes.append(Changed("it was overtaken") if code == _CHANGED else None)
    if not cursor.done:
        raise WireError(f"{_WHAT} has bytes after its end")
    return outcomes
