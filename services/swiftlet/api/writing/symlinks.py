"""Symbolic links of clients: PUT with X-Symlink-Target, copies of links, and the response to a POST to a link.

https://docs.openstack.org/swift/latest/middleware.html#symlink. A dynamic link leads to a name, whatever it holds; a
static one (X-Symlink-Target-Etag) to one content, which must exist when the link is made. The rights to the target are
checked when the link is followed, and when a static one is made.
"""

from __future__ import annotations

from dataclasses import replace

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import NewObject
from swiftlet.api.http.body import Body
from swiftlet.api.http.content_types import split_mark
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading import slo
from swiftlet.api.reading.links import ACCOUNT, TARGET, TARGET_BYTES, TARGET_ETAG, Link, current_version, follow
from swiftlet.api.reading.resolver import reader_of
from swiftlet.api.writing.copying import named_object
from swiftlet.api.writing.storing_links import become_link
from swiftlet.errors import InvalidName, NotFound
from swiftlet.names import decode

LINK_TYPE = "application/symlink"
"""The content type of a dynamic link without one of its own."""
_DIGITS = 18
_FORM = f"{TARGET} header must be of the form <container name>/<object name>"


async def prepare(new: NewObject) -> None:
    """Make the new object a link when X-Symlink-Target says so; nothing for other PUTs."""
    call, headers = new.call, new.call.request.headers
    if TARGET not in headers:
        return
    if new.source is not None or "multipart-manifest" in call.query:
        raise ApiError(
            400,
            f"{TARGET} can't be combined with X-Copy-From or multipart-manifest: a symbolic link has no "
            "bytes of its own",
        )
    await refuse_body(call, "Symlink requests require a zero byte body")
    link = _wanted(new)
    content_type = None
    if link.etag is not None and call.synced is not None:
        # The target may be copied after its link.
        link = replace(link, size=_bytes_of_target(headers.get(TARGET_BYTES, "0")))
    elif link.etag is not None:
        link, content_type = await _checked(call, link)
    if not headers.get("Content-Type"):
        new.content_type = content_type or LINK_TYPE
    become_link(new, link)


def _bytes_of_target(text: str) -> int:
    """Return the size of a link's target as another cluster tells it; 400 for another text."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ApiError(400, f"{TARGET_BYTES} is no number of bytes")
    return int(text)


async def refuse_body(call: Call, reason: str) -> None:
    """Raise 400 with `reason` when the request has a body, 411 when it gives no length."""
    body = Body(call.request, call.api.options.limits.max_file_size, call.api.options.client_timeout_s)
    if body.announced:
        raise ApiError(400, reason)
    async for _ in body.pieces():
        raise ApiError(400, reason)


def _wanted(new: NewObject) -> Link:
    """Return the link in the headers; 412 for a target that is no object's name, 400 for the link itself."""
    call, headers = new.call, new.call.request.headers
    try:
        if decode(headers[TARGET]).startswith("/"):
            raise ApiError(412, _FORM)
    except InvalidName as error:
        raise ApiError(412, f"{_FORM}: {error}") from error
    target = named_object(call, TARGET, ACCOUNT)
    if target == new.path:
        raise ApiError(400, "Symlink cannot target itself")
    etag = headers.get(TARGET_ETAG, "").strip().removeprefix("W/").strip('"')
    if any(char in ';"\\' or not "!" <= char <= "~" for char in etag):
        raise ApiError(400, f"Bad {TARGET_ETAG} format")
    return Link(target, ACCOUNT in headers, etag or None)


async def _checked(call: Call, link: Link) -> tuple[Link, str]:
    """Return a static link with its target's size, and the target's content type; 409 unless the target matches the
    link.
    """
    reader = reader_of(call)
    try:
        stored = await current_version(reader, await reader.head(link.target))
        found = (await follow(reader, stored, dynamic=False)).stored.info
    except NotFound as error:
        raise ApiError(409, f"{TARGET} does not exist") from error
    own = Link.of(stored.info)
    etag = stored.info.etag if own is None or own.etag is None else own.etag
    if etag != link.etag:
        raise ApiError(409, f"Object Etag {etag!r} does not match {TARGET_ETAG} header {link.etag!r}")
    content_type, mark = split_mark(found.content_type)
    size, slo_etag = (mark.size, mark.etag) if mark is not None and slo.is_manifest(found) else (found.size, None)
    return replace(link, size=size, slo_etag=slo_etag), content_type


def redirected(link: Link) -> web.Response:
    """Return the response to a POST to a link: it was applied to the link, and the location is the target."""
    headers = {"Location": link.location}
    if link.etag is not None:
        headers[TARGET_ETAG] = link.etag
    text = "The requested POST was applied to a symlink. POST directly to the target to apply requested metadata."
    return web.Response(status=307, text=text, headers=headers)
