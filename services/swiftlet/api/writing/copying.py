"""The preparer of copies: PUTs with X-Copy-From, and COPY take their bytes and metadata from a source.

The source is read as a GET with X-Newest reads it: the request's conditions and its range apply to the source, and a
large object is read as one object. With `multipart-manifest=get` the manifest is copied instead, after a new check of
its segments in the destination's account. Metadata are copied, except with X-Fresh-Metadata; the request's own take
precedence, and an empty header removes an item.

Fault model: a source that breaks off in the middle leaves the destination as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import NewObject
from swiftlet.api.http.content_types import split_mark
from swiftlet.api.http.metadata import OBJECT_META, canonical, check_object_items
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.ranges import parse_range
from swiftlet.api.reading import slo
from swiftlet.api.reading.links import ACCOUNT, LinkItself
from swiftlet.api.reading.readables import OBJECT_MANIFEST, PlainObject, Readable, Stored
from swiftlet.api.reading.resolver import followed, reader_of, resolve_asked
from swiftlet.api.reading.segment_stream import Source
from swiftlet.api.reading.sending import Span, choose_spans, refuse_by_conditions
from swiftlet.api.reading.version_reads import find_version, version_of
from swiftlet.api.writing.slo_put import use_manifest
from swiftlet.api.writing.storing_links import copy_link
from swiftlet.errors import InvalidName, NameTooLong
from swiftlet.names import Path, decode, parse_path


class _Copied:
    """A readable's bytes as the body of a new object."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.announced: int | None = size

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive."""
        return self._source.chunks()


def named_object(call: Call, header: str, account_header: str) -> Path:
    """Return the object that a header such as `Destination: /container/object` names; 412 for an invalid one."""
    account = named_account(call, account_header) or call.path.account
    value = call.request.headers[header].removeprefix("/")
    try:
        path = parse_path(f"/{quote(account, safe='')}/{value}")
    except NameTooLong:
        raise
    except InvalidName as error:
        raise ApiError(412, f"{_form(header)}: {error}") from error
    if path.container is None or path.obj is None:
        raise ApiError(412, _form(header))
    return path


def named_account(call: Call, header: str) -> str | None:
    """Return the account that a header such as `Destination-Account` names, if it is there; 412 for an invalid one."""
    if header not in call.request.headers:
        return None
    account = decode(call.request.headers[header])
    if not account or "/" in account:
        raise ApiError(412, f"{header}: an account name cannot be empty or contain slashes")
    return account


def _form(header: str) -> str:
    return f"{header} header must be of the form <container name>/<object name>"


async def prepare(new: NewObject) -> None:
    """Set the new object's bytes and metadata from its source, which `new.source` or X-Copy-From names."""
    call, headers = new.call, new.call.request.headers
    if new.source is None:
        new.source = named_object(call, "X-Copy-From", "X-Copy-From-Account")
    if call.query.get("multipart-manifest") == "put":
        raise ApiError(405, "Multipart Manifest PUTs cannot be COPY requests")
    if call.request.content_length or "Transfer-Encoding" in headers:
        raise ApiError(400, "Copy requests require a zero byte body")
    asked = await _source(call, new.source)
    stored = await followed(call, asked, newest=True)
    new.closers.append(stored.close)
    readable = await resolve_asked(call, stored)
    new.closers.append(readable.close)
    _check_conditions(call, readable)
    _take_metadata(new, stored)
    if isinstance(readable, slo.Manifest | slo.RawManifest):
        await _take_manifest(new, stored)
    elif isinstance(readable, LinkItself):
        copy_link(new, stored, readable.link, named_account(call, ACCOUNT))
    else:
        await _take_bytes(new, readable)
    _describe(new, new.source, readable)
    version = call.query.get("version-id") or await version_of(call, new.source, asked.info)
    if version is not None:
        new.shown["X-Copied-From-Version-Id"] = version


async def _source(call: Call, path: Path) -> Stored:
    """Return the newest version, or the one that the request asks for."""
    version = call.query.get("version-id")
    return await (find_version(call, path, version) if version else reader_of(call).get(path, newest=True))


def _check_conditions(call: Call, readable: Readable) -> None:
    refused = refuse_by_conditions(call, readable)
    if refused is not None:
        reason = "a condition on the ETag or date of the source does not hold"
        raise ApiError(refused.status, reason, {"Etag": readable.headers["Etag"]})


def _take_metadata(new: NewObject, stored: Stored) -> None:
    call, source = new.call, dict(stored.info.metadata)
    if not call.request.headers.get("Content-Type") and not call.flag("X-Detect-Content-Type"):
        new.content_type = split_mark(stored.info.content_type)[0]
    manifest = source.pop(OBJECT_MANIFEST, None)
    if not call.flag("X-Fresh-Metadata"):
        emptied = {canonical(name) for name, value in call.request.headers.items() if not value.strip()}
        new.metadata = {name: value for name, value in source.items() if name not in emptied} | new.metadata
        check_object_items(new.metadata, call.api.options.limits)
    if manifest is not None and call.query.get("multipart-manifest") == "get":
        new.metadata[OBJECT_MANIFEST] = manifest


async def _take_manifest(new: NewObject, stored: Stored) -> None:
    if "Range" in new.call.request.headers:
        raise ApiError(400, "a manifest can only be copied as a whole; send no Range header")
    raw = await slo.raw_manifest(stored)
    source = await raw.open(0, raw.size)
    await use_manifest(new, b"".join([chunk async for chunk in source.chunks()]))


async def _take_bytes(new: NewObject, readable: Readable) -> None:
    part = await slo.asked_part(new.call, readable)
    span = _span(new.call, readable) if part is None else part.span
    limit = new.call.api.options.limits.max_file_size
    if span is None or span[1] - span[0] > limit:
        size = "of unknown size" if span is None else f"of {span[1] - span[0]} bytes"
        raise ApiError(
            413,
            f"the source is {size}, but an object has at most {limit} bytes; copy the manifest with "
            "multipart-manifest=get",
        )
    source = await readable.open(*span)
    new.closers.append(source.close)
    new.body = _Copied(source, span[1] - span[0])
    if isinstance(readable, PlainObject) and span == (0, readable.size):
        new.copied = readable.info


def _span(call: Call, readable: Readable) -> Span | None:
    """Return the part of the source to copy; None when its size is not known."""
    spans = choose_spans(call, readable, parse_range(call.request.headers.get("Range")))
    if len(spans) > 1:
        raise ApiError(400, "only one range can be copied at a time")
    if spans:
        return spans[0]
    return None if readable.size is None else (0, readable.size)


def _describe(new: NewObject, source: Path, readable: Readable) -> None:
    new.shown |= {
        "X-Copied-From": quote(f"{source.container}/{source.obj}"),
        "X-Copied-From-Account": quote(source.account),
        "X-Copied-From-Last-Modified": readable.headers["Last-Modified"],
    }
    new.shown |= {name: value for name, value in new.metadata.items() if name.startswith(OBJECT_META)}
