"""Temporary URLs: what an object's URL with a signature allows, which key signed it, and the form of the response.

https://docs.openstack.org/swift/latest/middleware.html#tempurl. The signature covers the method, the expiry and the
path (or a prefix of names, or a range of addresses). It does not cover other parameters, so those that would change
what a request does are dropped, and headers that make an object point at others are refused.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from urllib.parse import quote

from aiohttp import web

from swiftlet.api.context.access import SignedAccess
from swiftlet.api.context.core import SwiftApi
from swiftlet.api.http.finishing import finish_with
from swiftlet.api.http.metadata import canonical
from swiftlet.api.http.problems import ApiError
from swiftlet.api.login.signing_keys import access_by
from swiftlet.auth.signatures import parse_signature
from swiftlet.names import Path
from swiftlet.settings.access import TempUrlSection

_WORTH_A_HEAD = ("HEAD", "GET", "POST", "PUT")
"""Methods whose signature also allows HEAD."""
_DISALLOWED = ("X-Object-Manifest", "X-Symlink-Target", "X-Copy-From")
"""Headers that would let an upload reach more than its signature covers."""
_LATEST = 253_402_300_799
"""The last second of the year 9999, for the Expires header."""


class Invalid(ApiError):
    """401 without the reason, so that nobody can find a signature by trial."""

    def __init__(self) -> None:
        """Use the reference's words."""
        super().__init__(401, "401 Unauthorized: Temp URL invalid\n")


@dataclass(frozen=True, slots=True)
class TempUrl:
    """The parameters of a temporary URL."""

    signature: str
    expires: int
    """Seconds since the epoch; 0 for an invalid time."""
    prefix: str | None = None
    ip_range: str | None = None
    filename: str | None = None
    inline: bool = False
    given: str = ""
    """`expires` as it was sent."""

    def messages(self, method: str, path: Path) -> list[str]:
        """Return the texts of which one must have been signed."""
        signed = f"/v1{path}" if self.prefix is None else f"prefix:/v1/{path.account}/{path.container}/{self.prefix}"
        address = "" if self.ip_range is None else f"ip={self.ip_range}\n"
        methods = _WORTH_A_HEAD if method == "HEAD" else (method,)
        return [f"{address}{one}\n{self.expires}\n{signed}" for one in methods]

    def covers(self, method: str, path: Path, remote: str | None, now: float) -> bool:
        """Return whether it is still valid, for this object and the client's address.

        With an empty prefix it is also valid for reading the container itself, if that is a web site.
        """
        if self.expires < now or path.container is None:
            return False
        if path.obj is None:
            if self.prefix != "" or method not in {"GET", "HEAD"}:
                return False
        elif not (path.obj.strip("/") and path.obj.startswith(self.prefix or "")):
            return False
        return self.ip_range is None or _in_range(remote, self.ip_range)


def is_temp_url(query: Mapping[str, str]) -> bool:
    """Return whether a request has the parameters of one."""
    return "temp_url_sig" in query or "temp_url_expires" in query


def parse_temp_url(query: Mapping[str, str]) -> TempUrl:
    """Return the parameters as they were sent."""
    return TempUrl(
        query.get("temp_url_sig", ""),
        parse_expires(query.get("temp_url_expires", "")),
        query.get("temp_url_prefix"),
        query.get("temp_url_ip_range") or None,
        query.get("filename") or None,
        "inline" in query,
        query.get("temp_url_expires", ""),
    )


def parse_expires(text: str) -> int:
    """Return seconds since the epoch, from digits or `2026-01-31T12:00:00Z`; 0 for anything else."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    try:
        return int(datetime.strptime(text[:32], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        return 0


def _in_range(remote: str | None, text: str) -> bool:
    try:
        address = ipaddress.ip_address(remote or "")
        network = ipaddress.ip_network(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address in network or (mapped is not None and mapped in network)


async def admit(
    api: SwiftApi, request: web.Request, path: Path, query: Mapping[str, str]
) -> tuple[web.Request, SignedAccess]:
    """Return the request with what is not allowed removed, and the rights that its signature gives. Raises Invalid."""
    section, url = api.options.tempurl, parse_temp_url(query)
    signature = parse_signature(url.signature, section.allowed_digests)
    if (
        signature is None
        or request.method not in section.methods
        or not request.rel_url.raw_path.startswith("/v1/")
        or not url.covers(request.method, path, request.remote, time.time())
    ):
        raise Invalid
    assert path.container is not None
    messages = url.messages(request.method, path)
    access = await access_by(api, path.account, path.container, signature, messages)
    if access is None:
        raise Invalid
    _refuse_pointers(request)
    finish_with(request, _finisher(section, url, path, request.method))
    return _cleaned(request, section), access


def _refuse_pointers(request: web.Request) -> None:
    if request.method in {"GET", "HEAD"}:
        return
    for name in _DISALLOWED:
        if name in request.headers:
            raise ApiError(400, f"The header {name!r} is not allowed in this tempurl")


def matcher(removed: Sequence[str], allowed: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that tells by its name whether a header is dropped; a pattern may be a beginning with `*`."""

    def fits(name: str, patterns: Sequence[str]) -> bool:
        return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)

    drop, keep = [canonical(p) for p in removed], [canonical(p) for p in allowed]
    return lambda name: fits(canonical(name), drop) and not fits(canonical(name), keep)


def _cleaned(request: web.Request, section: TempUrlSection) -> web.Request:
    """Return the request without the headers that are not allowed; the same request when there are none."""
    drops = matcher(section.incoming_remove_headers, section.incoming_allow_headers)
    headers = request.headers.copy()
    for name in {name for name in headers if drops(name)}:
        headers.popall(name)
    return request if len(headers) == len(request.headers) else request.clone(headers=headers)


def _finisher(section: TempUrlSection, url: TempUrl, path: Path, method: str) -> Callable[[web.StreamResponse], None]:
    drops = matcher(section.outgoing_remove_headers, section.outgoing_allow_headers)

    def finish(response: web.StreamResponse) -> None:
        for name in {name for name in response.headers if drops(name)}:
            response.headers.popall(name)
        if method in {"GET", "HEAD"} and response.status // 100 == 2:
            existing = response.headers.get("Content-Disposition")
            response.headers["Content-Disposition"] = disposition_of(url, path, existing)
            response.headers["Expires"] = formatdate(min(url.expires, _LATEST), usegmt=True)

    return finish


def disposition_of(url: TempUrl, path: Path, existing: str | None) -> str:
    """Return Content-Disposition: by the URL, else by the object's metadata, else for saving under the object's own
    name.
    """
    if url.filename:
        return disposition("inline" if url.inline else "attachment", url.filename)
    if url.inline:
        return "inline"
    if existing:
        return existing.replace("\r", "%0D").replace("\n", "%0A")
    name = path.obj if path.obj is not None else path.container or ""
    return disposition("attachment", name.rstrip("/").rpartition("/")[2])


def disposition(kind: str, filename: str) -> str:
    """Return `kind` with a file's name, in both of RFC 6266's forms; whatever could end the value is
    percent-encoded.
    """
    return f"{kind}; filename=\"{quote(filename, safe=' /')}\"; filename*=UTF-8''{quote(filename)}"
