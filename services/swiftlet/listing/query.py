"""One page of a listing: limit, markers, prefix, delimiter, path and reverse, with the semantics of the Swift API.

Pure: rows come from a `fetch` callable that seeks in an ordered set of names. A page with a delimiter costs one seek
per common prefix, however many names have it, and reads at most one row more than it returns. (`path` shows no common
prefixes, so each of them costs a seek without adding to the page; a page that would pass over too many is refused.)

Names are compared by code point, which is the byte order of UTF-8. Every range is half-open, `low <= name < high`. The
successor of a string is the string and a NUL, which no name contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from swiftlet.errors import PageTooCostly
from swiftlet.model import ListingQuery, Subdir


class Named(Protocol):
    """Anything that has a name."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Named)

_LAST = "\U0010ffff"
_BEFORE_SURROGATES = "\ud7ff"
_AFTER_SURROGATES = "\ue000"


def after(name: str) -> str:
    """Return the least string greater than `name`."""
    return name + "\0"


def beyond(prefix: str) -> str | None:
    """Return the least string greater than all that begin with `prefix`; None when there is no such string."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    last = kept[-1]
    following = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1)
    return kept[:-1] + following


@dataclass(frozen=True, slots=True)
class Span:
    """A range of names `[low, high)`, which is still to be listed; `high` None stands for no bound."""

    low: str
    high: str | None

    @property
    def empty(self) -> bool:
        """Whether no name can be in the range."""
        return self.high is not None and self.low >= self.high

    def within(self, other: Span) -> Span:
        """Return the names that are in both ranges."""
        highs = [high for high in (self.high, other.high) if high is not None]
        return Span(max(self.low, other.low), min(highs) if highs else None)


Fetch = Callable[[Span, bool, int], Iterator[R]]
"""A function that returns rows in a range by name, in descending order if the flag is set, at most the given number."""


def _span(low: str, high: str, prefix: str) -> Span:
    """Return the range of names greater than `low` and less than `high` (if not empty) that begin with `prefix`."""
    start = max(after(low) if low else "", prefix)
    ends = [end for end in (high or None, beyond(prefix)) if end is not None]
    return Span(start, min(ends) if ends else None)


def span_of(query: ListingQuery) -> Span:
    """Return the range of all names that the query is about."""
    low, high = (query.end_marker, query.marker) if query.reverse else (query.marker, query.end_marker)
    if query.path is not None:
        return _span(low, high, query.path.rstrip("/") + "/" if query.path else "")
    return _span(low, high, query.prefix)


def rest(span: Span, last: Subdir, reverse: bool) -> Span:
    """Return the part of the range behind a common prefix that was shown."""
    return _past_prefix(span, last.name, reverse) or Span("", "")


def _past(span: Span, name: str, reverse: bool) -> Span:
    return Span(span.low, name) if reverse else Span(after(name), span.high)


def _past_prefix(span: Span, prefix: str, reverse: bool) -> Span | None:
    if reverse:
        return Span(span.low, prefix)
    end = beyond(prefix)
    return None if end is None else Span(end, span.high)


def list_page(query: ListingQuery, fetch: Fetch[R]) -> list[R | Subdir]:
    """Return the page that `query` asks for. Raises PageTooCostly for a `path` that passes over too many
    directories.
    """
    low, high = (query.end_marker, query.marker) if query.reverse else (query.marker, query.end_marker)
    if query.path is not None:
        prefix = query.path.rstrip("/") + "/" if query.path else ""
        return _level(_span(low, high, prefix), prefix, query, fetch)
    span = _span(low, high, query.prefix)
    if not query.delimiter:
        return [] if span.empty else list(fetch(span, query.reverse, query.limit))
    return _folded(span, low, query, fetch)


def _folded(start: Span, low: str, query: ListingQuery, fetch: Fetch[R]) -> list[R | Subdir]:
    """Return a page in which names with the delimiter are folded into common prefixes, except for one equal
    to `low`.
    """
    page: list[R | Subdir] = []
    span: Span | None = start
    while span is not None and not span.empty and len(page) < query.limit:
        subdir = None
        for row in fetch(span, query.reverse, query.limit - len(page)):
            end = row.name.find(query.delimiter, len(query.prefix))
            if end >= 0:
                subdir = row.name[: end + len(query.delimiter)]
                break
            page.append(row)
        if subdir is None:
            break
        if subdir != low:
            page.append(Subdir(subdir))
        span = _past_prefix(span, subdir, query.reverse)
    return page


MAX_PASSED = 100_000
"""The directories that a page with `path` may pass over: each costs a seek, and none is in the page."""


def _level(start: Span, prefix: str, query: ListingQuery, fetch: Fetch[R]) -> list[R | Subdir]:
    """Return the rows of one level of a pseudo-hierarchy, without the level's own marker object and without deeper
    names.
    """
    page: list[R | Subdir] = []
    span: Span | None = start
    passed = 0
    while span is not None and not span.empty and len(page) < query.limit:
        deeper, seen = None, 0
        wanted = query.limit - len(page)
        for row in fetch(span, query.reverse, wanted):
            seen += 1
            end = row.name.find("/", len(prefix))
            if 0 <= end < len(row.name) - 1:
                deeper = row.name[: end + 1]
                break
            if row.name != prefix or not prefix:
                page.append(row)
            last = row.name
        if deeper is not None:
            passed += 1
            if passed > MAX_PASSED:
                raise PageTooCostly(
                    f"the path has more than {MAX_PASSED} directories on one level; use prefix and delimiter"
                )
            span = _past_prefix_keeping(span, deeper, query.reverse)
        elif seen < wanted:
            break
        else:
            span = _past(span, last, query.reverse)
    return page


def _past_prefix_keeping(span: Span, prefix: str, reverse: bool) -> Span | None:
    """Return the range behind all names below `prefix`; in reverse order it keeps the object with that very name."""
    return Span(span.low, after(prefix)) if reverse else _past_prefix(span, prefix, False)
