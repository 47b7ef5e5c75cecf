"""Containers as web sites: index pages, redirects to directories, error pages, listings in HTML.

https://docs.openstack.org/swift/latest/middleware.html#staticweb. It applies to requests without a token, with
`X-Web-Mode: true`, or with a temporary URL for a prefix, to containers whose owners have set `X-Container-Meta-Web-*`.
Everything is read with the sender's rights, so a site shows nothing that its visitors could not read anyway. The
settings of a site are cached as all of the container's metadata: a change counts within `proxy.container_info_ttl_s` in
processes that have served it before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from swiftlet.api.context.access import SignedAccess, TokenAccess
from swiftlet.api.context.core import Call
from swiftlet.api.http.concurrency import ROW_BYTES, beside
from swiftlet.api.http.content_types import split_mark
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.metadata import CONTAINER_META
from swiftlet.api.http.problems import answer
from swiftlet.api.login.temp_url import TempUrl, parse_temp_url
from swiftlet.api.login.tokens import base_url
from swiftlet.api.reading.resolver import reader_of, resolve
from swiftlet.api.reading.sending import send_head, send_one
from swiftlet.api.reading.web_listing import Site, listing_disabled, listing_page
from swiftlet.errors import Forbidden, NotFound, SwiftletError, Unauthorized
from swiftlet.model import ListingQuery
from swiftlet.names import Path

Respond = Callable[[Path], Awaitable[web.StreamResponse]]
"""Returns the ordinary response to the request for another path; raises errors."""
WEB_MODE = "X-Web-Mode"
_DIRECTORY = "application/directory"
_MAX_MARKER = 1
"""The largest size in bytes of an object that only stands for a directory."""


def is_visit(call: Call, query: Mapping[str, str]) -> bool:
    """Return whether a request may be one to a web site; `query` is the one before a temporary URL was
    removed from it.
    """
    if not call.api.options.static_web.enabled or call.request.method not in {"GET", "HEAD"}:
        return False
    if call.path.container is None:
        return False
    if isinstance(call.access, SignedAccess):
        return parse_temp_url(query).prefix is not None
    anonymous = isinstance(call.access, TokenAccess) and call.access.identity is None
    return anonymous or says_yes(call.request.headers.get(WEB_MODE, ""))


async def visit(call: Call, query: Mapping[str, str], respond: Respond) -> web.StreamResponse:
    """Return the page, or the ordinary response where there is no site."""
    assert call.path.container is not None
    try:
        container = await call.api.containers.get(call.path.account, call.path.container)
    except SwiftletError:
        return await respond(call.path)
    site = site_of(container.metadata)
    url = parse_temp_url(query) if isinstance(call.access, SignedAccess) else None
    if not site.any:
        if call.path.obj is None and says_yes(call.request.headers.get(WEB_MODE, "")):
            await call.access.require(call.request.method, call.path)
            raise NotFound(
                "this container is not a web site; set X-Container-Meta-Web-Index or X-Container-Meta-Web-Listings"
            )
        return await respond(call.path)
    return await _Visit(call, site, respond, url).answer()


def site_of(metadata: Mapping[str, str]) -> Site:
    """Return the settings of the site from a container's metadata."""

    def item(name: str) -> str:
        return metadata.get(f"{CONTAINER_META}Web-{name}", "").strip()

    return Site(
        index=item("Index"),
        error=item("Error"),
        listings=says_yes(item("Listings")),
        css=item("Listings-Css"),
        label=item("Listings-Label"),
        directory_type=item("Directory-Type") or _DIRECTORY,
    )


@dataclass(frozen=True, slots=True)
class _Visit:
    """One request to a site."""

    call: Call
    site: Site
    respond: Respond
    url: TempUrl | None

    async def answer(self) -> web.StreamResponse:
        """Return the page, or the error's."""
        try:
            return await (self._container() if self.call.path.obj is None else self._object())
        except (NotFound, Unauthorized, Forbidden) as error:
            page = await self._error_page(error)
            if page is None:
                raise
            return page

    @property
    def _slash(self) -> bool:
        return self.call.request.rel_url.raw_path.endswith("/")

    async def _container(self) -> web.StreamResponse:
        """Serve the index page, or else the listing."""
        if not (self.site.index or self.site.listings):
            return await self.respond(self.call.path)
        if self.site.index:
            index = replace(self.call.path, obj=self.site.index)
            if await self._readable(index):
                return await self.respond(index) if self._slash else self._redirect()
        await self.call.access.require(self.call.request.method, self.call.path)
        if not self._slash:
            return self._redirect()
        return await self._listing("")

    async def _object(self) -> web.StreamResponse:
        """Return the object; where there is none, or only one that stands for a directory, the page below its name."""
        path, obj = self.call.path, self.call.path.obj
        assert obj is not None
        await self.call.access.require(self.call.request.method, path)
        if await self._readable(path, directories=False):
            return await self.respond(path)
        if not (self.site.index or self.site.listings):
            return await self.respond(path)
        below = obj if obj.endswith("/") else obj + "/"
        index = replace(path, obj=below + self.site.index)
        if self.site.index and await self._readable(index):
            return await self.respond(index) if self._slash else self._redirect()
        if self._slash:
            return await self._listing(below)
        await self._anything_below(below)
        return self._redirect()

    async def _readable(self, path: Path, directories: bool = True) -> bool:
        """Return whether the visitor would see an object there. Raises Unauthorized and Forbidden of the
        path itself.
        """
        try:
            stored = await reader_of(self.call).head(path)
        except NotFound:
            return False
        except (Unauthorized, Forbidden):
            if path == self.call.path:
                raise
            return False
        info = stored.info
        kind = split_mark(info.content_type)[0]
        return directories or kind != self.site.directory_type or info.size > _MAX_MARKER

    async def _anything_below(self, prefix: str) -> None:
        """Raise NotFound unless the visitor may list and there is an object with the prefix."""
        container = Path(self.call.path.account, self.call.path.container)
        try:
            await self.call.access.require("GET", container)
        except (Unauthorized, Forbidden) as error:
            raise NotFound(f"{self.call.path} does not exist") from error
        query = ListingQuery(limit=1, prefix=prefix, delimiter="/")
        _, rows = await self.call.api.listings.list_objects(container.account, self.call.container, query)
        if not rows:
            raise NotFound(f"{self.call.path} does not exist")

    def _redirect(self) -> web.Response:
        """Return 301 to the same path with a slash, absolute as in the reference, without parameters.

        The base is `proxy.storage_url`, or else the host that the client named.
        """
        target = f"{base_url(self.call.api, self.call.request)}/v1{self.call.path.quoted}/"
        text = "The resource has moved; look below the directory instead.\n"
        return web.Response(status=301, text=text, headers={"Location": target})

    async def _listing(self, prefix: str) -> web.StreamResponse:
        call = self.call
        place = f"/v1{call.path}" + ("" if prefix else "/")
        if not self.site.listings:
            text = listing_disabled(self.site, place)
            raise _NoListing(text)
        container = Path(call.path.account, call.path.container)
        await call.access.require("GET", container)
        await call.api.rates.admit("GET", container)
        limit = call.api.options.limits.container_listing_limit
        query = ListingQuery(limit=limit, prefix=prefix, delimiter="/")
        _, rows = await call.api.listings.list_objects(container.account, call.container, query)
        if prefix and not rows:
            raise NotFound(f"{call.path} does not exist")
        text = await beside(len(rows) * ROW_BYTES, listing_page, self.site, place, prefix, rows, self.url)
        return _page(text)

    async def _error_page(self, error: SwiftletError) -> web.StreamResponse | None:
        """Return the site's own page for 401 and 404, if there is one that the visitor may read."""
        status = 404 if isinstance(error, NotFound) else 401 if isinstance(error, Unauthorized) else None
        if status is None or self.url is not None:
            return None
        plain = _page(str(error), status) if isinstance(error, _NoListing) else None
        if not self.site.error:
            return plain
        # Ranges and conditions of the request don't apply to this page.
        request = self.call.request.clone(headers={})
        call = replace(self.call, request=request, query={})
        try:
            stored = await reader_of(call).get(replace(call.path, obj=f"{status}{self.site.error}"))
        except SwiftletError:
            return plain
        try:
            readable = await resolve(reader_of(call), stored)
            challenge = answer(error, call.path.account).headers.get("WWW-Authenticate")
            if challenge is not None:
                readable.headers["WWW-Authenticate"] = challenge
            if request.method == "HEAD":
                return await send_head(call, readable, status=status)
            return await send_one(call, readable, None, status=status)
        finally:
            await stored.close()


class _NoListing(NotFound):
    """404 with a page that says why."""


def _page(text: str, status: int = 200) -> web.Response:
    # With a temporary URL the page would otherwise be saved as a file.
    headers = {"Content-Disposition": "inline"} if status == 200 else {}
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8", headers=headers)
