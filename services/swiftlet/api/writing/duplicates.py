"""Stores an object a second time, unchanged, under another name: links, manifests and metadata included.

The copy has the timestamp of the original, so that two concurrent copies result in one object, and its ETag, by which
links name a version, whatever the policies say.

Fault model: the original may be overwritten while it is read. Then there is no copy, and the caller looks again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import NewObject
from swiftlet.api.writing.storing import store
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ObjectInfo
from swiftlet.names import Path
from swiftlet.placement.transfers import Download
from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class Place:
    """An object's name and its container's policy."""

    path: Path
    policy: int


class _Stored:
    """A stored object's bytes as the body of a new one."""

    def __init__(self, download: Download) -> None:
        self._download = download
        self.announced: int | None = download.info.size

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive."""
        return self._download.chunks()


async def duplicate(call: Call, source: Place, info: ObjectInfo, target: Place, timestamp: Timestamp) -> None:
    """Store what `info` describes at `target`, too. Raises NotFound or Unavailable when something is missing."""
    download = await call.api.objects.get(source.path, source.policy, version=info.timestamp)
    try:
        copy = NewObject(
            call,
            target.path,
            info.content_type,
            dict(info.metadata),
            _Stored(download),
            copied=info,
            keeps_etag=True,
            sysmeta=dict(info.sysmeta),
        )
        await store(copy, target.policy, timestamp)
    except NotFound as error:
        raise Unavailable(f"{error}, although it existed a moment ago; try again") from error
    finally:
        await download.close()
