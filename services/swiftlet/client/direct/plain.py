"""Which requests can go directly, and what they say in the terms of devices.

Only plain objects go directly: bytes with a content type and metadata that need no proxy to mean something. What is
not known here goes over HTTP, where the proxy knows it, or refuses it with the right words.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from swiftlet.client.digests import checksum_of
from swiftlet.client.errors import status_error
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span, metadata_of
from swiftlet.model import ObjectInfo as StoredInfo
from swiftlet.names import MAX_CONTAINER_NAME, MAX_OBJECT_NAME

_META = "X-Object-Meta-"
_KEPT = frozenset(
    {"Content-Encoding", "Content-Disposition", "Content-Language", "Cache-Control", "Expires", "X-Robots-Tag"}
)
"""Headers that are kept with an object beside its own metadata, and mean nothing to a proxy."""
_CONDITIONS = frozenset({"if-match", "if-none-match"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
"""A header's value that is the same in HTTP and on a device: ASCII, without blanks at its ends."""
_MARKED = re.compile(r";\s*swift_", re.IGNORECASE)
"""What a content type has that only proxies set."""
_TYPES = mimetypes.MimeTypes(filenames=())
_UNKNOWN = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class NewObject:
    """A new object without its bytes."""

    content_type: str
    metadata: dict[str, str]


def _is_named_plainly(request: ObjectRequest) -> bool:
    container, name = request.container, request.name
    if not container or not name or "/" in container or "\0" in container or "\0" in name:
        return False
    try:
        return len(container.encode()) <= MAX_CONTAINER_NAME and len(name.encode()) <= MAX_OBJECT_NAME
    except UnicodeEncodeError:
        return False


def is_read(request: ObjectRequest, span: Span | None = None) -> bool:
    """Return whether a GET or HEAD can go directly."""
    if request.query or (span is not None and span.start < 0) or not _is_named_plainly(request):
        return False
    return all(name.lower() in _CONDITIONS for name in request.headers)


def is_deletion(request: ObjectRequest) -> bool:
    """Return whether a DELETE can go directly: conditions of writes are a proxy's."""
    return not request.query and not request.headers and _is_named_plainly(request)


def new_object(request: ObjectRequest) -> NewObject | None:
    """Return what a PUT stores beside the bytes; None when it can't go directly."""
    if request.query or not _is_named_plainly(request):
        return None
    content_type, metadata = "", dict[str, str]()
    for given, value in request.headers.items():
        name = _canonical(given)
        if not _HEADER_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return None
        if name == "Content-Type":
            content_type = value
        elif name in _KEPT or name.startswith(_META):
            metadata[name] = value
        else:
            return None
    content_type = content_type or _type_of(request.name)
    return None if _MARKED.search(content_type) else NewObject(content_type, metadata)


def _type_of(name: str) -> str:
    """Return the content type that a proxy would give a name: without types that only this machine knows."""
    last = name.rpartition("/")[2]
    before, _, ending = last.partition(".")
    if not ending:
        return _UNKNOWN
    # Only the endings count, of which most objects have the same few; but not where a name begins with a point.
    return _type_of_ending(ending) if before else _TYPES.guess_type("/" + name)[0] or _UNKNOWN


@lru_cache(1024)
def _type_of_ending(ending: str) -> str:
    return _TYPES.guess_type("/name." + ending)[0] or _UNKNOWN


def _canonical(name: str) -> str:
    """Return a header's name as objects have it: `X-Object-Meta-Some-Name`."""
    full = "-".join(part.capitalize() for part in name.split("-"))
    return _canonical(full.replace("_", "-")) if "_" in full and full.startswith(_META) else full


def described(stored: StoredInfo) -> ObjectInfo:
    """Return what a proxy would tell of an object in its answer's headers."""
    assert stored.xxh3 is not None, "guests read whole objects"
    headers = {
        "content-length": str(stored.size),
        "content-type": stored.content_type,
        "etag": stored.etag,
        "last-modified": stored.modified.http_date,
        "x-timestamp": stored.modified.normal,
        "accept-ranges": "bytes",
    }
    headers.update((name.lower(), value) for name, value in stored.metadata.items())
    return ObjectInfo(
        size=stored.size,
        etag=stored.etag,
        content_type=stored.content_type,
        last_modified=datetime.fromtimestamp(stored.modified.http_seconds, UTC),
        metadata=metadata_of(headers, _META.lower()),
        headers=headers,
        checksum=checksum_of(stored.xxh3),
    )


def check(method: str, request: ObjectRequest, info: ObjectInfo, span: Span | None = None) -> None:
    """Raise the error of a condition that does not hold, and of a range that has no byte of the object."""
    conditions = {name.lower(): value for name, value in request.headers.items()}
    if "if-match" in conditions and not _matches(conditions, "if-match", info.etag):
        raise status_error(412, "Precondition Failed", f"{method} {request}")
    if "if-none-match" in conditions and _matches(conditions, "if-none-match", info.etag):
        raise status_error(304, "Not Modified", f"{method} {request}")
    if span is not None and info.size is not None and span.start >= info.size:
        raise status_error(416, "Requested Range Not Satisfiable", f"{method} {request}")


def _matches(conditions: Mapping[str, str], name: str, etag: str) -> bool:
    tags = {tag.strip().removeprefix("W/").strip('"') for tag in conditions[name].split(",")}
    return "*" in tags or etag in tags
