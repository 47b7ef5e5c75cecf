"""DELETE of an object, alone or with the segments that its manifest names (`multipart-manifest=delete`).

Segments are deleted first, a few at a time, then nested manifests; the manifest itself is deleted last, and only when
nothing before it failed, so that the request can be repeated. The response is 200; the outcome is in its body. With
`version-id` the manifest is that version of the object, and only this version is deleted after its segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.reports import render_report, report_alive, report_type, status_line
from swiftlet.api.http.concurrency import beside, each
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.problems import ApiError, status_of
from swiftlet.api.reading import slo
from swiftlet.api.reading.links import current_version
from swiftlet.api.reading.resolver import reader_of
from swiftlet.api.reading.slo_manifest import load_entries
from swiftlet.api.reading.version_reads import find_version
from swiftlet.api.reading.versioning import NULL
from swiftlet.api.requests.objects import delete_one
from swiftlet.api.writing.version_writes import delete_version
from swiftlet.api.writing.write_conditions import check_write
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.names import Path
from swiftlet.segments import path_of

_FACTOR = 10
"""How many times more segments than one manifest may have are deleted, nested ones included."""


@dataclass(slots=True)
class _Outcome:
    deleted: int = 0
    missing: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    server_failed: bool = False

    def failed(self, path: Path, error: SwiftletError) -> None:
        """Count an object that could not be deleted; a missing one is no failure."""
        if isinstance(error, NotFound):
            self.missing += 1
            return
        status = status_of(error)
        self.server_failed |= status >= 500
        text = str(error) if isinstance(error, ApiError) else status_line(status)
        self.failures.append((quote(f"/{path.container}/{path.obj}"), text))

    def fields(self) -> dict[str, object]:
        """Return the fields of the report."""
        status, body = 200, ""
        if self.failures:
            status = 502 if self.server_failed else 400
        elif not self.deleted + self.missing:
            status, body = 400, "Invalid bulk delete."
        return {
            "Response Status": status_line(status),
            "Response Body": body,
            "Number Deleted": self.deleted,
            "Number Not Found": self.missing,
        }


async def delete(call: Call) -> web.StreamResponse:
    """DELETE /v1/{account}/{container}/{object}: 204, 404 when there was none."""
    version, kind = call.query.get("version-id"), call.query.get("multipart-manifest")
    if kind not in {None, "delete"}:
        raise ApiError(400, "multipart-manifest of a DELETE request can only be 'delete'")
    if not version or version == NULL:
        await check_write(call, call.path)
    if kind is not None:
        return await _delete_with_segments(call)
    if version and version != NULL:
        return await delete_version(call, version)
    await delete_one(call, call.path, version)
    return web.Response(status=204)


async def _delete_with_segments(call: Call) -> web.StreamResponse:
    """Answer DELETE ?multipart-manifest=delete: 200 with a report."""
    if says_yes(call.query.get("async", "")):
        raise ApiError(501, "async=true is not supported: segments are deleted before the response")
    media_type = report_type(call)

    async def work() -> bytes:
        outcome = _Outcome()
        await _delete_all(call, outcome)
        return render_report(media_type, outcome.fields(), outcome.failures, "delete")

    return await report_alive(call, 200, media_type, work)


async def _delete_all(call: Call, outcome: _Outcome) -> None:
    version = call.query.get("version-id")
    try:
        manifests, segments = await _gather(call)
    except SwiftletError as error:
        outcome.failed(call.path, error)
        return

    async def remove(path: Path) -> None:
        try:
            await delete_one(call, path, version if path == call.path else None)
            outcome.deleted += 1
        except SwiftletError as error:
            outcome.failed(path, error)

    await each(segments, remove, call.api.options.limits.slo_concurrency)
    for manifest in reversed(manifests):
        if outcome.failures:
            return
        await remove(manifest)


async def _gather(call: Call) -> tuple[list[Path], list[Path]]:
    """Return the manifests from the outermost on, and the other segments, each once."""
    limit = call.api.options.limits.slo_max_manifest_segments * _FACTOR
    manifests: dict[Path, None] = {call.path: None}
    segments: dict[Path, None] = {}
    waiting = [call.path]
    while waiting:
        path = waiting.pop()
        try:
            entries = await _entries(call, path)
        except NotFound:
            if path == call.path:
                raise
            continue
        for entry in entries:
            if "data" in entry:
                continue
            segment = path_of(entry, path.account)
            if not entry.get("sub_slo"):
                segments[segment] = None
            elif segment not in manifests:
                manifests[segment] = None
                waiting.append(segment)
        if len(manifests) + len(segments) > limit:
            raise ApiError(400, "Too many buffered slo segments to delete.")
    return list(manifests), [path for path in segments if path not in manifests]


async def _entries(call: Call, path: Path) -> list[dict[str, object]]:
    reader, version = reader_of(call), call.query.get("version-id")
    if version and path == call.path:
        stored = await find_version(call, path, version)
    else:
        stored = await current_version(reader, await reader.head(path))
    if not slo.is_manifest(stored.info):
        raise ApiError(400, "Not an SLO manifest")
    data = await stored.read()
    return await beside(len(data), load_entries, data)
