"""Cross-origin requests: what a browser is told about scripts of other sites, before a request and with its response.

https://docs.openstack.org/swift/latest/cors.html. A container's rules are in its metadata; they only tell browsers what
they may show to whom, and give nobody access. Parts of a request that are echoed are checked first, so that they are
safe in a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.http.finishing import finish_with
from swiftlet.api.http.problems import ApiError
from swiftlet.errors import NotFound
from swiftlet.names import Path
from swiftlet.settings.access import CorsSection

_PREFIX = "X-Container-Meta-Access-Control-"
ALLOW_ORIGIN, MAX_AGE, EXPOSE_HEADERS = _PREFIX + "Allow-Origin", _PREFIX + "Max-Age", _PREFIX + "Expose-Headers"
_ALWAYS_EXPOSED = (
    "cache-control",
    "content-language",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "pragma",
    "x-openstack-request-id",
    "x-timestamp",
    "x-trans-id",
)
_ORIGIN = re.compile(r"[!-~]{1,512}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_MAX_REQUESTED = 100
"""The largest number of header names of a pre-flight request that are considered."""


async def note_origin(api: SwiftApi, request: web.Request, path: Path) -> None:
    """Add the CORS headers to the response to a request with an Origin; nothing for accounts and other requests."""
    origin = request.headers.get("Origin")
    if origin is None or path.container is None:
        return
    section, metadata = api.options.cors, await _metadata(api, path)
    if _ORIGIN.fullmatch(origin) and (not section.strict or is_allowed(section, metadata, origin)):
        finish_with(request, lambda response: _mark(response, section, metadata, origin))


async def options(api: SwiftApi, request: web.Request, path: Path, methods: Sequence[str]) -> web.Response:
    """Answer OPTIONS: the allowed methods (200), and whether a browser's pre-flight is granted; 401 if not."""
    headers = {"Allow": ", ".join(methods)}
    origin = request.headers.get("Origin")
    if not origin or path.container is None:
        return web.Response(status=200, headers=headers)
    section, metadata = api.options.cors, await _metadata(api, path)
    asked = request.headers.get("Access-Control-Request-Method")
    if not _ORIGIN.fullmatch(origin) or not is_allowed(section, metadata, origin) or asked not in methods:
        raise ApiError(
            401,
            "the container does not allow this method from this origin; see "
            "X-Container-Meta-Access-Control-Allow-Origin",
            headers,
        )
    headers |= _origin_headers(metadata, origin)
    if MAX_AGE in metadata:
        headers["Access-Control-Max-Age"] = metadata[MAX_AGE]
    headers["Access-Control-Allow-Methods"] = headers["Allow"]
    wanted = _tokens(request.headers.get("Access-Control-Request-Headers", "").split(","))
    if wanted:
        headers["Access-Control-Allow-Headers"] = ", ".join(wanted)
        headers["Vary"] = ", ".join(filter(None, [headers.get("Vary"), "Access-Control-Request-Headers"]))
    return web.Response(status=200, headers=headers)


async def _metadata(api: SwiftApi, path: Path) -> Mapping[str, str]:
    assert path.container is not None
    try:
        return (await api.containers.fresh(path.account, path.container)).metadata
    except NotFound:
        return {}


def is_allowed(section: CorsSection, metadata: Mapping[str, str], origin: str) -> bool:
    """Return whether the container's rules, or the cluster's, allow this origin or all."""
    allowed = {*metadata.get(ALLOW_ORIGIN, "").split(), *section.allow_origin}
    return origin in allowed or "*" in allowed


def _origin_headers(metadata: Mapping[str, str], origin: str) -> dict[str, str]:
    if metadata.get(ALLOW_ORIGIN, "").strip() == "*":
        return {"Access-Control-Allow-Origin": "*"}
    return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}


def _mark(response: web.StreamResponse, section: CorsSection, metadata: Mapping[str, str], origin: str) -> None:
    headers = response.headers
    if "Access-Control-Allow-Origin" in headers:
        return
    own = [name.lower() for name in headers if name.startswith(("X-Container-Meta", "X-Object-Meta"))]
    named = metadata.get(EXPOSE_HEADERS, "").replace(",", " ").split()
    exposed = {*_ALWAYS_EXPOSED, *own, *(name.lower() for name in (*section.expose_headers, *_tokens(named)))}
    headers["Access-Control-Expose-Headers"] = ", ".join(sorted(exposed))
    vary = headers.get("Vary")
    for name, value in _origin_headers(metadata, origin).items():
        headers[name] = f"{vary}, {value}" if name == "Vary" and vary else value


def _tokens(names: Sequence[str]) -> list[str]:
    """Return the well-formed names among these, each once."""
    stripped = (name.strip() for name in names[:_MAX_REQUESTED])
    return list(dict.fromkeys(name for name in stripped if _TOKEN.fullmatch(name)))
