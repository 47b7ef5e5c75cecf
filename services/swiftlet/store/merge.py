"""How versions of one object merge: pure rules that every store follows.

An object on a device is at most one version of data, one tombstone and one POST. The rules make the outcome
depend on which records arrived, never on their order:

- The newer of data and tombstone decides whether there is an object; at equal timestamps the tombstone wins.
- A POST counts while it is newer than the data; the newest one replaces all metadata of older ones.
- The content type is that of whatever set it last. A POST that leaves it alone carries the newest earlier
  POST's type in it, and a POST that comes late, behind a newer one, still hands its type on.
- A POST newer than a tombstone is kept beside it unseen: data newer than the tombstone may still arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swiftlet.errors import NotFound, Superseded
from swiftlet.model import Entry, Kind, ObjectInfo, PostRecord, PutFooter, PutRecord
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(frozen=True, slots=True)
class State:
    """The timestamps of the records that a device has of one object.

    `content_type` is that of the POST, ZERO when the POST set none.
    """

    data: Timestamp | None = None
    tombstone: Timestamp | None = None
    post: Timestamp | None = None
    content_type: Timestamp = ZERO

    @property
    def exists(self) -> bool:
        """Whether there is an object to read."""
        return self.data is not None and (self.tombstone is None or self.data > self.tombstone)

    @property
    def newest(self) -> Timestamp | None:
        """The timestamp that a write of data or of a tombstone has to beat."""
        return self.data if self.exists else self.tombstone


NOTHING = State()
"""The state of an object that a device has never held."""


def entry_of(digest: bytes, state: State) -> Entry | None:
    """Return the object's entry in the comparison of its partition; None when no record counts."""
    if state.exists:
        assert state.data is not None
        post = state.post if state.post is not None and state.post > state.data else ZERO
        content_type = state.content_type if post != ZERO and state.content_type > state.data else ZERO
        return Entry(digest, Kind.DATA, state.data, post, content_type)
    if state.tombstone is not None:
        return Entry(digest, Kind.TOMBSTONE, state.tombstone)
    return None


def info_of(put: PutRecord, footer: PutFooter, post: PostRecord | None) -> ObjectInfo:
    """Return the object that data and the newest POST make together; the POST may be None or older than the data."""
    metadata, meta_timestamp = put.metadata, put.timestamp
    content_type, content_type_timestamp = put.content_type, put.timestamp
    if post is not None and post.timestamp > put.timestamp:
        metadata, meta_timestamp = post.metadata, post.timestamp
        if post.content_type is not None and post.content_type_timestamp > put.timestamp:
            content_type, content_type_timestamp = post.content_type, post.content_type_timestamp
    return ObjectInfo(
        put.name,
        put.timestamp,
        footer.size,
        footer.etag,
        footer.xxh3,
        content_type,
        metadata,
        put.sysmeta,
        meta_timestamp,
        content_type_timestamp,
    )


def check_put(what: str, state: State, timestamp: Timestamp) -> bool:
    """Return whether a PUT changes anything. Raises Superseded when there is something newer."""
    if state.exists and state.data == timestamp:
        return False
    newest = state.newest
    if newest is not None and newest >= timestamp:
        raise Superseded(f"{what} is already at {newest}", newest)
    return True


def check_delete(what: str, state: State, timestamp: Timestamp) -> bool:
    """Return whether a tombstone has to be written. Raises Superseded when there are newer data.

    A tombstone as new as this one or newer makes it needless.
    """
    if state.exists:
        assert state.data is not None
        if state.data > timestamp:
            raise Superseded(f"{what} is already at {state.data}", state.data)
        return True
    return state.tombstone is None or state.tombstone < timestamp


def absent(what: str, state: State) -> NotFound:
    """Return the error for a request about an object that is not here."""
    if state.tombstone is not None:
        return NotFound(f"{what} was deleted at {state.tombstone}", state.tombstone)
    return NotFound(f"{what} is not here")


@dataclass(frozen=True, slots=True)
class PostMerge:
    """The outcome of a POST: the record to store (None for no change), and the timestamp of a newer POST that it lost
    to.
    """

    store: PostRecord | None
    superseded_by: Timestamp | None = None


def merge_post(data: Timestamp, held: PostRecord | None, new: PostRecord) -> PostMerge:
    """Merge a POST into the data with the timestamp `data` and the POST stored so far, which counts if newer than the
    data.
    """
    if held is not None and held.timestamp <= data:
        held = None
    if new.timestamp <= data:
        return PostMerge(None, data)
    if held is None:
        return PostMerge(_with_type(new, data, None))
    if new.timestamp > held.timestamp:
        return PostMerge(_with_type(new, data, held))
    merged = _with_type(held, data, new)
    changed = merged.content_type_timestamp != _with_type(held, data, None).content_type_timestamp
    return PostMerge(merged if changed else None, held.timestamp if new.timestamp < held.timestamp else None)


def _with_type(base: PostRecord, data: Timestamp, other: PostRecord | None) -> PostRecord:
    """Return `base` with the newest content type of both records that is newer than the data's, or with none."""
    types = [
        (post.content_type_timestamp, post.content_type)
        for post in (base, other)
        if post is not None and post.content_type is not None and post.content_type_timestamp > data
    ]
    if not types:
        return replace(base, content_type=None, content_type_timestamp=ZERO)
    moment, content_type = max(types, key=lambda pair: pair[0])
    return replace(base, content_type=content_type, content_type_timestamp=moment)
