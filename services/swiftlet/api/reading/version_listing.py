"""`GET CONTAINER?versions`: all versions of all objects, by name, the newest of each first.

Two listings are merged: the container's own, which says what is current (a link to a version, or an object that is not
a version and is shown as version `null`), and the hidden container's. Each row of either is at least one line of the
response, so a page of both is enough for a page of the response, and for every name in it the current version is known.

The latest version is the one that the object's link leads to; where there is no object, the newest version if it is a
delete marker, and otherwise none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from swiftlet.api.context.core import Call
from swiftlet.api.http.concurrency import ROW_BYTES, beside
from swiftlet.api.http.content_types import split_link
from swiftlet.api.http.listings import json_row, parse_listing
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import BEHIND_TIMES, MARK, split_version, version_name, version_of, versions_container
from swiftlet.api.reading.versioning import DELETE_MARKER, NULL
from swiftlet.errors import NotFound
from swiftlet.model import ContainerInfo, ListingQuery, ObjectRow, Subdir
from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the response: a version of an object (None: version `null`), or a common prefix."""

    row: ObjectRow | Subdir
    version: Timestamp | None = None
    latest: bool = False

    @property
    def fields(self) -> dict[str, object]:
        """Return the line as JSON."""
        shown = json_row(self.row)
        if isinstance(self.row, Subdir):
            return shown
        if self.row.content_type == DELETE_MARKER:
            shown["content_type"] = DELETE_MARKER
        version = NULL if self.version is None else self.version.internal
        return shown | {"version_id": version, "is_latest": self.latest}


@dataclass(frozen=True, slots=True)
class Asked:
    """The listing that a request asks for."""

    query: ListingQuery
    version: Timestamp | None = None
    """The version of the object `query.marker` after which the listing continues."""
    at_null: bool = False
    """Whether the listing continues after version `null` of that object."""

    @property
    def within(self) -> bool:
        """Return whether more lines of the marker's own name may follow."""
        return self.version is not None or (self.at_null and not self.query.reverse)

    @property
    def hidden(self) -> ListingQuery:
        """Return the query for the hidden container, with one row more than the page has."""
        query = self.query
        marker = query.marker and self._bound(query.marker, past=not (self.at_null or query.reverse))
        if self.version is not None:
            marker = version_name(query.marker, self.version)
        end = query.end_marker and self._bound(query.end_marker, past=query.reverse)
        return replace(query, limit=query.limit + 1, prefix=MARK + query.prefix, marker=marker, end_marker=end)

    def _bound(self, name: str, past: bool) -> str:
        """Return a bound just before or just after all versions of an object; a common prefix stays one."""
        delimiter = self.query.delimiter
        if delimiter and name.endswith(delimiter):
            return MARK + name
        return f"{MARK}{name}{MARK}{BEHIND_TIMES if past else ''}"


def parse(call: Call) -> Asked:
    """Return the request's parameters; 400 and 412 for invalid ones."""
    query = parse_listing(call.query, call.api.options.limits.container_listing_limit)
    if query.path is not None:
        raise ApiError(400, "path can't be combined with versions; use prefix and delimiter")
    if set(query.delimiter) & set("0123456789"):
        raise ApiError(400, "invalid delimiter param: digits can't delimit versions")
    text = call.query.get("version_marker")
    if text is None:
        return Asked(query)
    if not query.marker:
        raise ApiError(400, "version_marker param requires marker")
    if text == NULL:
        return Asked(query, at_null=True)
    try:
        return Asked(query, Timestamp.parse(text))
    except ValueError as error:
        raise ApiError(400, "invalid version_marker param") from error


@dataclass(frozen=True, slots=True)
class _Object:
    """What is known of one name: the container's own row, and those of the versions in the page."""

    row: ObjectRow | None
    versions: Sequence[tuple[Timestamp, ObjectRow]]
    begins: bool
    """Whether the newest version is among them, if there is any."""
    complete: bool
    """Whether all versions are among them."""

    def lines(self, null: bool) -> list[Line]:
        """Return version `null` if it is wanted, then the others, the newest first."""
        link = None if self.row is None else split_link(self.row.content_type)[1]
        linked = None if link is None else version_of(link.target)
        current = None if linked is None else linked[1]
        lines = [Line(row, version, version == current) for version, row in self.versions]
        if self.row is None:
            if self.begins and lines and self.versions[0][1].content_type == DELETE_MARKER:
                lines[0] = replace(lines[0], latest=True)
        elif link is None or current is None:
            return [Line(self.row, latest=True), *lines] if null else lines
        elif self.complete and not any(line.latest for line in lines):
            shown = replace(
                self.row, content_type=split_link(self.row.content_type)[0], size=link.size, etag=link.etag or ""
            )
            lines.append(Line(shown, current, latest=True))
            lines.sort(key=lambda line: line.version or current, reverse=True)
        return lines


def merge(asked: Asked, own: Sequence[ObjectRow | Subdir], hidden: Sequence[ObjectRow | Subdir]) -> Iterator[Line]:
    """Yield the lines of the response in order, from a page of either listing; as many are correct as the page has."""
    reverse, marker = asked.query.reverse, asked.query.marker
    rows = {row.name: row for row in own if isinstance(row, ObjectRow)}
    subdirs = {row.name for row in own if isinstance(row, Subdir)}
    subdirs |= {row.name.removeprefix(MARK) for row in hidden if isinstance(row, Subdir)}
    found: dict[str, list[tuple[Timestamp, ObjectRow]]] = {}
    for row in hidden:
        split = split_version(row.name) if isinstance(row, ObjectRow) else None
        if split is not None:
            assert isinstance(row, ObjectRow)
            found.setdefault(split[0], []).append((split[1], replace(row, name=split[0])))
    cut = next(reversed(found), None) if len(hidden) > asked.query.limit else None
    for name in sorted({*rows, *found, *subdirs}, reverse=reverse):
        if name in subdirs:
            yield Line(Subdir(name))
            continue
        goes_on = name == marker
        versions = sorted(found.get(name, []), key=lambda pair: pair[0], reverse=True)
        begins = not (name == cut if reverse else goes_on and asked.version is not None)
        one = _Object(rows.get(name), versions, begins, name != cut and not (goes_on and asked.version is not None))
        lines = one.lines(null=not goes_on or (reverse and asked.version is not None))
        yield from reversed(lines) if reverse else lines


async def page(call: Call) -> tuple[ContainerInfo, str]:
    """Return the container and the page of its versions in JSON; 406 when the client wants another format."""
    if call.query.get("format", "json").lower() != "json":
        raise ApiError(406, "versions are listed as JSON only")
    accept = call.request.headers.get("Accept")
    if "format" not in call.query and accept and not _takes_json(accept):
        raise ApiError(406, "versions are listed as JSON only; Accept does not allow it")
    asked, account = parse(call), call.path.account
    info, rows = await call.api.listings.list_objects(account, call.container, asked.query)
    own = list(rows)
    if asked.within:
        one = ListingQuery(limit=1, prefix=asked.query.marker)
        _, first = await call.api.listings.list_objects(account, call.container, one)
        own += [row for row in first if row.name == asked.query.marker]
    hidden: Sequence[ObjectRow | Subdir] = ()
    with suppress(NotFound):
        _, hidden = await call.api.listings.list_objects(account, versions_container(call.container), asked.hidden)

    def text() -> str:
        lines = islice(merge(asked, own, hidden), asked.query.limit)
        return json.dumps([line.fields for line in lines])

    return info, await beside((len(own) + len(hidden)) * ROW_BYTES, text)


def _takes_json(accept: str) -> bool:
    kinds = {piece.partition(";")[0].strip().lower() for piece in accept.split(",")}
    return bool(kinds & {"application/json", "application/*", "*/*"})
