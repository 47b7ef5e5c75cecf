"""Pages of a container's listing as clients read them, composed by SQLite: JSON, or one name per line.

Most of the cost of a page is work on each row in Python, several times on its way. Most pages need none of it: they
have no common prefixes, no shards, and no row that shows something else than it holds (content types with hidden parts
begin with `;swift_`). For all other pages there is no text, and the rows have to be requested.
"""

from __future__ import annotations

from swiftlet.boundaries.listings import PageForm
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.query import Span, span_of
from swiftlet.listing.schema import TICKS_BELOW_ZERO
from swiftlet.model import ListingQuery
from swiftlet.timestamp import NONCE_BITS, TICKS_PER_SECOND

_MODIFIED = "max(timestamp, ifnull(meta_timestamp, timestamp))"
_TICKS = f"(({_MODIFIED} >> {NONCE_BITS}) + {TICKS_BELOW_ZERO})"
_JSON = (
    """'{"name": ' || json_quote(name) || ', "hash": ' || json_quote(etag) || ', "bytes": ' || size"""
    """ || ', "content_type": ' || json_quote(content_type)"""
    f""" || ', "last_modified": "' || strftime('%Y-%m-%dT%H:%M:%S', {_TICKS} / {TICKS_PER_SECOND}, 'unixepoch')"""
    f""" || printf('.%05d0"}}', {_TICKS} % {TICKS_PER_SECOND})"""
)
_COLUMNS = {
    # Only the proxy itself makes names with a NUL; SQLite's text functions do not handle them.
    PageForm.JSON: f"{_JSON}, instr(content_type, ';swift_') + instr(name, char(0))",
    PageForm.PLAIN: "name, 0",
}


def page_text(database: ContainerDb, query: ListingQuery, form: PageForm) -> bytes | None:
    """Return the page in UTF-8; None when its rows are needed to make it."""
    if query.delimiter or query.path is not None or database.points():
        return None
    span = span_of(query)
    if span.empty or not query.limit:
        return _joined([], form)
    rows = database.connection.execute(*_select(span, query, form)).fetchall()
    if any(odd for _, odd in rows):
        return None
    return _joined([text for text, _ in rows], form)


def _select(span: Span, query: ListingQuery, form: PageForm) -> tuple[str, tuple[str | int, ...]]:
    below = "" if span.high is None else " AND name < ?"
    order = " DESC" if query.reverse else ""
    sql = f"SELECT {_COLUMNS[form]} FROM live WHERE name >= ?{below} ORDER BY name{order} LIMIT ?"  # noqa: S608
    bounds = (span.low,) if span.high is None else (span.low, span.high)
    return sql, (*bounds, query.limit)


def _joined(texts: list[str], form: PageForm) -> bytes:
    if form is PageForm.JSON:
        return f"[{', '.join(texts)}]".encode()
    return "".join([f"{text}\n" for text in texts]).encode()
