"""PUT of a static large object's manifest: every segment is checked before the manifest is stored.

Segments are requested concurrently, a few at a time. With `heartbeat=on` the response begins at once (202) and white
space keeps the connection alive during the checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.new_object import Held, NewObject
from swiftlet.api.context.reports import ManyProblems, render_report, report_alive, report_type, status_line
from swiftlet.api.http.body import Body
from swiftlet.api.http.concurrency import beside, each
from swiftlet.api.http.content_types import SloMark, with_mark
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.problems import ApiError, status_of
from swiftlet.api.reading import slo
from swiftlet.api.reading.readables import STATIC_LARGE_OBJECT
from swiftlet.api.reading.resolver import reader_of, resolve
from swiftlet.api.reading.slo_manifest import Found, Wanted, check_stored, parse_manifest, stored_form, too_small
from swiftlet.errors import SwiftletError
from swiftlet.names import Path

_ROOT = "upload"
"""The XML element of reports about manifests."""


async def prepare(new: NewObject) -> None:
    """Turn the manifest that a client sends into the one that is stored; nothing for other PUTs."""
    if new.call.synced is not None:
        if says_yes(new.call.request.headers.get(STATIC_LARGE_OBJECT, "")):
            await _take_stored(new)
        return
    kind = new.call.query.get("multipart-manifest")
    if kind is None or new.source is not None:
        return
    if kind != "put":
        raise ApiError(400, "multipart-manifest of a PUT request can only be 'put'")
    await use_manifest(new, await _body(new.call))


async def _body(call: Call) -> bytes:
    options = call.api.options
    body = Body(call.request, options.limits.slo_max_manifest_size, options.client_timeout_s)
    return b"".join([piece async for piece in body.pieces()])


async def _take_stored(new: NewObject) -> None:
    """Take a manifest in the form in which another cluster has stored it; its segments may be copied later."""
    raw = await _body(new.call)
    total, etag = await beside(len(raw), check_stored, raw, new.call.api.options.limits)
    new.sysmeta = {STATIC_LARGE_OBJECT: "True", slo.ETAG: etag, slo.SIZE: str(total)}
    new.content_type = with_mark(new.content_type, SloMark(total, etag))
    new.body = Held(raw)


async def use_manifest(new: NewObject, raw: bytes) -> None:
    """Check a manifest in the form of a client and make it what is stored."""
    call, limits = new.call, new.call.api.options.limits
    wanted = await beside(len(raw), parse_manifest, raw, new.path, limits)
    found = await _look_at_all(call, wanted)
    wrong = [
        (quote(one.written), text)
        for index, one in enumerate(wanted)
        if one.path is not None
        for text in _wrong(call, one, found[one.path], index == len(wanted) - 1)
    ]
    if wrong:
        status = 503 if any(isinstance(fact, int) and fact >= 500 for fact in found.values()) else 400
        reason = "segments do not match the manifest"
        raise ManyProblems(status, reason, wrong, report_type(call, "text/plain"), _ROOT)
    good = {path: fact for path, fact in found.items() if isinstance(fact, Found)}
    _become_manifest(new, *await beside(len(raw), stored_form, wanted, good))


def _become_manifest(new: NewObject, total: int, etag: str, stored: bytes) -> None:
    if new.etag is not None and new.etag.strip().strip('"').lower() != etag:
        raise ApiError(422, f"the ETag of the large object is {etag}, but the ETag header is {new.etag.strip()[:64]!r}")
    new.etag = None
    new.sysmeta = {STATIC_LARGE_OBJECT: "True", slo.ETAG: etag, slo.SIZE: str(total)}
    new.content_type = with_mark(new.content_type, SloMark(total, etag))
    new.body = Held(stored)
    new.shown["Etag"] = f'"{etag}"'


async def _look_at_all(call: Call, wanted: list[Wanted]) -> dict[Path, Found | int]:
    """Return what is known of each object, or the error status of the answer about it."""
    found: dict[Path, Found | int] = {}

    async def look(path: Path) -> None:
        try:
            found[path] = await _look_at(call, path)
        except SwiftletError as error:
            found[path] = status_of(error)

    paths = dict.fromkeys(one.path for one in wanted if one.path is not None)
    await each(paths, look, call.api.options.limits.slo_concurrency)
    return found


async def _look_at(call: Call, path: Path) -> Found:
    reader = reader_of(call)
    stored = await reader.head(path)
    readable = await resolve(reader, stored)
    if readable.size is None:
        raise ApiError(400, "the size of the object is not known: it is made of too many segments")
    nested = slo.is_manifest(stored.info)
    return Found(readable.etag, readable.size, readable.content_type, readable.modified, nested)


def _wrong(call: Call, one: Wanted, fact: Found | int, last: bool) -> list[str]:
    """Return what is wrong with one segment, in the reference's words."""
    limits = call.api.options.limits
    if isinstance(fact, int):
        return [status_line(fact)]
    wrong = []
    span = (0, fact.size) if one.range is None else one.range.resolve(fact.size)
    if span is None:
        wrong.append("Unsatisfiable Range")
    elif span[1] - span[0] < limits.slo_min_segment_size and not last:
        wrong.append(too_small(limits).capitalize())
    if one.size is not None and one.size != fact.size:
        wrong.append("Size Mismatch")
    if one.etag is not None and one.etag != fact.etag:
        wrong.append("Etag Mismatch")
    return wrong


async def with_heartbeat(call: Call, work: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
    """Respond 202 at once; the outcome of the PUT is in the body."""
    media_type = report_type(call, "text/plain")

    async def report() -> bytes:
        failures: tuple[tuple[str, str], ...] = ()
        try:
            answer = await work()
        except SwiftletError as error:
            failures = error.failures if isinstance(error, ManyProblems) else ()
            fields = {"Response Status": status_line(status_of(error)), "Response Body": _reason(error)}
            fields |= error.fields if isinstance(error, ManyProblems) else {}
        else:
            fields = {"Response Status": status_line(answer.status), "Response Body": ""}
            fields |= {"Etag": answer.headers["Etag"], "Last Modified": answer.headers["Last-Modified"]}
        return render_report(media_type, fields, failures, _ROOT)

    return await report_alive(call, 202, media_type, report, at_once=True)


_REASONS = {
    400: (
        "Bad Request\nThe server could not comply with the request since it is either malformed or otherwise incorrect."
    ),
    503: "Service Unavailable\nThe server is currently unavailable. Please try again at a later time.",
}
"""Reasons in the reference's words, for errors whose body describes each segment."""


def _reason(error: SwiftletError) -> str:
    return _REASONS.get(error.status, str(error)) if isinstance(error, ManyProblems) else str(error)
