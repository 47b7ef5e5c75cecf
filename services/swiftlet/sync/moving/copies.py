"""Brings one object from one device to another: its data, its metadata or its tombstone.

The same functions serve to push (from here to a peer) and to pull (from a peer to here). The receiving device checks
what arrives against its checksums and refuses what is older than what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import NotFound, Superseded
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.sync.session.compare import Need, Push
from swiftlet.timestamp import ZERO

SMALL_BYTES = 1 << 20
"""Objects up to this size travel in one round trip."""


async def unpaced(size_bytes: int) -> None:
    """Do not limit the speed."""


async def bring(
    transport: ObjectTransport,
    source: Device,
    target: Device,
    key: ObjectKey,
    push: Push,
    moved: Callable[[int], Awaitable[None]] = unpaced,
) -> int:
    """Send what `target` lacks of an object that `source` has; return how many bytes of data went.

    `moved` is called with the size of each piece, and returns when the next one may go. Errors are those of
    `ObjectTransport`, of either device. Superseded and NotFound mean that one of them changed. They are also raised
    when `source` has nothing or only an older version now: its device was replaced, and what it got since is not news
    to `target`.
    """
    if push.need is Need.TOMBSTONE:
        await transport.delete(target, key, push.entry.timestamp, "", None)
        return 0
    if push.need is not Need.DATA:
        await _bring_post(transport, source, target, key, push.entry)
        return 0
    try:
        info = await _copy(transport, source, target, key, push.entry, moved)
    except Superseded:
        # Newer data came there in the meantime, from somebody who may not know of the POST.
        await _bring_post(transport, source, target, key, push.entry)
        raise
    if _is_posted(info):
        await transport.post(target, key, _post_of(info))
    return info.size


async def _bring_post(
    transport: ObjectTransport, source: Device, target: Device, key: ObjectKey, compared: Entry
) -> None:
    """Send the newest POST of an object, if there is one."""
    if not _is_posted(compared):
        return
    info = await transport.head(source, key)
    _must_be_as_new(info, compared)
    if _is_posted(info):
        await transport.post(target, key, _post_of(info))


def _is_posted(one: Entry | ObjectInfo) -> bool:
    return max(one.meta_timestamp, one.content_type_timestamp) > one.timestamp


async def _copy(
    transport: ObjectTransport,
    source: Device,
    target: Device,
    key: ObjectKey,
    compared: Entry,
    moved: Callable[[int], Awaitable[None]],
) -> ObjectInfo:
    stream = await transport.get(source, key)
    info = stream.info
    record = PutRecord(info.name, info.timestamp, info.content_type, info.metadata, info.sysmeta)
    assert info.xxh3 is not None, "replicas are whole objects"
    footer = PutFooter(info.size, info.etag, info.xxh3)
    try:
        _must_be_as_new(info, compared)
        if info.size <= SMALL_BYTES:
            body = b"".join([chunk async for chunk in stream.chunks()])
            await transport.put(target, key, record, body, footer, None)
            await moved(info.size)
        else:
            upload = await transport.open_put(target, key, record, info.size, None)
            try:
                async for chunk in stream.chunks():
                    await upload.write(chunk)
                    await moved(len(chunk))
                await upload.commit(footer)
            finally:
                await upload.abort()
    finally:
        await stream.close()
    return info


def _must_be_as_new(info: ObjectInfo, compared: Entry) -> None:
    if info.timestamp < compared.timestamp:
        older = f"only {info.timestamp.internal} is there"
        raise NotFound(f"{compared.digest.hex()} of {compared.timestamp.internal} is gone, {older}")


def _post_of(info: ObjectInfo) -> PostRecord:
    own_type = info.content_type_timestamp > info.timestamp
    return PostRecord(
        info.meta_timestamp,
        info.metadata,
        info.content_type if own_type else None,
        info.content_type_timestamp if own_type else ZERO,
    )
