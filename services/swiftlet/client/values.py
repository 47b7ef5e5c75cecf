"""Descriptions of accounts, containers and objects, and the parameters of requests: values without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from swiftlet.client.errors import ConfigurationError

_OBJECT_META = "x-object-meta-"
_EPOCH = datetime.fromtimestamp(0, UTC)
_VERSIONING = ("x-versions-location", "x-history-location")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes: from `start` up to and without `stop`; a negative start counts from the end, without a stop."""

    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        """Refuse ranges that HTTP has no words for."""
        if self.stop is not None and not 0 <= self.start < self.stop:
            raise ConfigurationError(f"no range of bytes: from {self.start} to {self.stop}")

    @property
    def header(self) -> str:
        """The range as the header `Range` has it."""
        if self.start < 0:
            return f"bytes={self.start}"
        return f"bytes={self.start}-{'' if self.stop is None else self.stop - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """When a request counts; it raises PreconditionFailed or NotModified otherwise.

    For writes they are checked against the newest version before the write, not atomically with it.
    """

    if_match: str | None = None
    """The ETag that the object has to have; `*`: any."""
    if_none_match: str | None = None
    """The ETag that the object must not have; `*`: there must be no object."""
    if_modified_since: datetime | None = None
    if_unmodified_since: datetime | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The conditions as headers."""
        made = {}
        for name, etag in (("If-Match", self.if_match), ("If-None-Match", self.if_none_match)):
            if etag is not None:
                made[name] = etag if etag == "*" or etag.startswith('"') else f'"{etag}"'
        for name, moment in (
            ("If-Modified-Since", self.if_modified_since),
            ("If-Unmodified-Since", self.if_unmodified_since),
        ):
            if moment is not None:
                made[name] = moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return made

    def __bool__(self) -> bool:
        """Whether there is any condition."""
        return bool(self.headers)


ALWAYS = Conditions()
"""The request is carried out in any case."""


@dataclass(frozen=True, slots=True)
class ObjectRequest:
    """One request for an object: its place, and headers and parameters beyond what every request has."""

    container: str
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.container}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """The description of an object that HEAD and GET return."""

    size: int | None
    """Size of the whole object in bytes; None of a dynamic large object that is too large for the store to add up."""
    etag: str
    """Without quotes. MD5 of the bytes, `xxh3-` with their XXH3-128, or that of a large object's segments."""
    content_type: str = ""
    last_modified: datetime = _EPOCH
    metadata: Mapping[str, str] = field(default_factory=dict)
    """`X-Object-Meta-*`, by names in lower case."""
    is_static_large: bool = False
    is_dynamic_large: bool = False
    version_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """All headers of the answer, by names in lower case."""
    checksum: str = ""
    """What the bytes can be compared with in place of the ETag: the XXH3-64 with which devices have stored them."""

    @property
    def etag_is_of_bytes(self) -> bool:
        """Whether the ETag is a digest of the object's bytes."""
        return not (self.is_static_large or self.is_dynamic_large)

    @classmethod
    def from_headers(cls, given: Mapping[str, str]) -> ObjectInfo:
        """Return what the headers of an answer say."""
        headers = {name.lower(): value for name, value in given.items()}
        size: str | None = headers.get("content-length")
        if (content_range := headers.get("content-range")) is not None:
            size = content_range.rpartition("/")[2]
        return cls(
            size=int(size) if size is not None and size.isdigit() else None,
            etag=headers.get("etag", "").strip('"'),
            content_type=headers.get("content-type", ""),
            last_modified=moment(headers.get("last-modified")),
            metadata=metadata_of(headers, _OBJECT_META),
            is_static_large=headers.get("x-static-large-object", "").lower() == "true",
            is_dynamic_large="x-object-manifest" in headers,
            version_id=headers.get("x-object-version-id"),
            headers=headers,
        )


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of an object, and what the store tells of it."""

    data: bytes
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to an upload."""

    etag: str
    """The ETag without its quotes."""
    size: int
    """Bytes that were sent."""
    last_modified: datetime = _EPOCH
    version_id: str | None = None
    segments: int = 0
    """The number of segments of a large object; 0 for an object that is stored as one."""
    is_compared: bool = False
    """Whether devices have compared the bytes with a digest that was sent along, so that the ETag needs no look."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The result of a download."""

    size: int
    info: ObjectInfo
    is_verified: bool
    """Whether the bytes were compared with digests; those of dynamic large objects can't be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An object in a listing, or with `is_prefix` names that begin alike, up to the delimiter."""

    name: str
    size: int = 0
    etag: str = ""
    content_type: str = ""
    last_modified: datetime = _EPOCH
    is_prefix: bool = False
    is_static_large: bool = False
    version_id: str | None = None
    is_latest: bool = True

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Entry:
        """Return an entry of a listing in JSON."""
        if "subdir" in row:
            return cls(name=row["subdir"], is_prefix=True)
        etag = str(row.get("slo_etag") or row.get("hash") or "").strip('"')
        return cls(
            name=row["name"],
            size=int(row["bytes"]),
            etag=etag,
            content_type=row.get("content_type", ""),
            last_modified=datetime.fromisoformat(row["last_modified"]).replace(tzinfo=UTC),
            is_static_large="slo_etag" in row,
            version_id=row.get("version_id"),
            is_latest=row.get("is_latest", True),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInfo:
    """The description of a container; a listing of containers has the first three fields alone."""

    name: str
    objects: int = 0
    size: int = 0
    policy: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def keeps_versions(self) -> bool:
        """Whether older versions of its objects may be there."""
        return "x-versions-enabled" in self.headers or any(self.headers.get(name) for name in _VERSIONING)

    @classmethod
    def from_headers(cls, name: str, given: Mapping[str, str]) -> ContainerInfo:
        """Return what the headers of an answer say."""
        headers = {key.lower(): value for key, value in given.items()}
        return cls(
            name=name,
            objects=int(headers.get("x-container-object-count", 0)),
            size=int(headers.get("x-container-bytes-used", 0)),
            policy=headers.get("x-storage-policy", ""),
            metadata=metadata_of(headers, "x-container-meta-"),
            headers=headers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountInfo:
    """The description of an account."""

    containers: int = 0
    objects: int = 0
    size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_headers(cls, given: Mapping[str, str]) -> AccountInfo:
        """Return what the headers of an answer say."""
        headers = {key.lower(): value for key, value in given.items()}
        return cls(
            containers=int(headers.get("x-account-container-count", 0)),
            objects=int(headers.get("x-account-object-count", 0)),
            size=int(headers.get("x-account-bytes-used", 0)),
            metadata=metadata_of(headers, "x-account-meta-"),
            headers=headers,
        )


def metadata_of(headers: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the metadata among headers whose names are in lower case."""
    return {name.removeprefix(prefix): value for name, value in headers.items() if name.startswith(prefix)}


def metadata_headers(kind: str, metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return metadata as headers of a kind: `Object`, `Container` or `Account`."""
    return {f"X-{kind}-Meta-{name}": value for name, value in (metadata or {}).items()}


def moment(text: str | None) -> datetime:
    """Return the time in a header such as `Last-Modified`; the epoch if there is none."""
    if not text:
        return _EPOCH
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except ValueError:
        return _EPOCH
