"""Reads copies of many objects from one store, or stores them: in one native call where the store is native.

Fault model: a malformed message is a WireError and changes nothing. One object that can't be read or stored does not
stop the others. Each copy is durable, or known not to be, when the answer is made.
"""

from __future__ import annotations

from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.sync.moving.copies_wire import (
    ALONE_BYTES,
    MAX_BYTES,
    MAX_OBJECTS,
    Changed,
    Copy,
    Giving,
    Wanted,
    copies_from,
    copy_bytes,
    outcomes_bytes,
    wanted_from,
)
from swiftlet.transport.wire import WireError


def read_copies(store: Store, wanted: bytes) -> bytes:
    """Return the answer to a question for copies. Raises WireError. Blocks as the store does."""
    if isinstance(store, NativeStore):
        try:
            return store.read_copies(wanted, objects=MAX_OBJECTS, size=MAX_BYTES, alone=ALONE_BYTES)
        except ValueError as error:
            raise WireError(str(error)) from error
    return read_each(store, wanted)


def read_each(store: Store, wanted: bytes) -> bytes:
    """Return the answer to a question for copies, with one call of the store for each object."""
    policy, objects = wanted_from(wanted)
    giving = Giving(policy)
    for one in objects:
        giving.give(*((None,) if giving.full else _give(store, ObjectKey(policy, one.partition, one.digest), one)))
    return giving.answer()


def _give(store: Store, key: ObjectKey, wanted: Wanted) -> tuple[bytes | None, int]:
    """Return a copy and the size of its data; None for an object that can't be read or has to travel alone."""
    try:
        if wanted.metadata_alone:
            info = store.stat(key)
            posted = max(info.meta_timestamp, info.content_type_timestamp) > info.timestamp
            return (copy_bytes(key, info, None) if posted else None), 0
        with store.open(key) as reader:
            info = reader.info
            if info.size > ALONE_BYTES:
                return None, 0
            return copy_bytes(key, info, reader.read(0, info.size)), info.size
    except SwiftletError:
        # The reason is given when the object is asked for alone.
        return None, 0


def take_copies(store: Store, copies: bytes) -> bytes:
    """Store copies; return the outcome of each, or raise WireError and store none. Blocks until all are durable."""
    if isinstance(store, NativeStore):
        try:
            return store.take_copies(copies, objects=MAX_OBJECTS)
        except ValueError as error:
            raise WireError(str(error)) from error
    return take_each(store, copies)


def take_each(store: Store, copies: bytes) -> bytes:
    """Store copies with separate calls for each."""
    return outcomes_bytes([_take(store, copy) for copy in copies_from(copies)])


def _take(store: Store, copy: Copy) -> SwiftletError | None:
    try:
        overtaken: Superseded | None = None
        if copy.put is not None:
            record, footer, data = copy.put
            writer = store.create(copy.key, len(data))
            try:
                writer.write(data)
                writer.commit(record, footer)
            except Superseded as error:
                overtaken = error
            finally:
                writer.abort()
        if copy.post is not None:
            # The POST is merged even where there are newer data, whose writer may not have known of it.
            store.post(copy.key, copy.post)
        if overtaken is not None:
            raise overtaken
        if copy.put is None and copy.post is None:
            try:
                store.delete(copy.key, copy.timestamp, "")
            except NotFound:
                return None
    except (Superseded, NotFound):
        return Changed("it was overtaken")
    except SwiftletError as error:
        return error
    return None
