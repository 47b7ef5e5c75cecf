"""Listings: the query that asks for one, and the three formats that answer it (text, JSON, XML).

https://docs.openstack.org/api-ref/object-store/ (show container details and list objects; show account details).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from aiohttp import web

from swiftlet.api.http.content_types import LinkMark, split_link, split_mark
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import version_of
from swiftlet.boundaries.listings import PageForm
from swiftlet.model import ContainerRow, ListingQuery, ObjectRow, Subdir

Row = ObjectRow | ContainerRow | Subdir

_YES = frozenset({"true", "1", "yes", "on", "t", "y"})
_FORMATS = {"plain": "text/plain", "json": "application/json", "xml": "application/xml"}
_TYPES = ("text/plain", "application/json", "application/xml", "text/xml")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def says_yes(value: str) -> bool:
    """Return whether a parameter or header means true, in any of the forms that Swift accepts."""
    return value.lower() in _YES


def parse_limit(text: str, max_limit: int) -> int:
    """Return a page's length: `max_limit` for what is no number, 412 for more."""
    if not (text.isascii() and text.isdigit()):
        return max_limit
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(max_limit)) or int(digits) > max_limit:
        raise ApiError(412, f"Maximum limit is {max_limit}")
    return int(digits)


def parse_listing(query: Mapping[str, str], max_limit: int) -> ListingQuery:
    """Return a listing's parameters; 412 for a limit that is too large."""
    limit, delimiter = parse_limit(query.get("limit", ""), max_limit), query.get("delimiter", "")
    return ListingQuery(
        limit=limit,
        marker=query.get("marker", ""),
        end_marker=query.get("end_marker", ""),
        prefix=query.get("prefix", ""),
        # No listed name has a NUL, so a delimiter with one never occurs.
        delimiter="" if "\0" in delimiter else delimiter,
        path=query.get("path"),
        reverse=says_yes(query.get("reverse", "")),
    )


def choose_type(query: Mapping[str, str], accept: str | None) -> str:
    """Return the response's media type: by `format`, else by Accept, else plain text; 406 when none is acceptable."""
    if "format" in query:
        return _FORMATS.get(query["format"].lower(), "text/plain")
    if not accept or not accept.strip():
        return "text/plain"
    best: tuple[float, int] | None = None
    chosen = ""
    ranges = _accepted(accept)
    refused = {kind for kind, quality in ranges if quality <= 0}
    for kind, quality in ranges:
        for order, offered in enumerate(_TYPES):
            if quality > 0 and offered not in refused and kind in {offered, "*/*", offered.partition("/")[0] + "/*"}:
                exact = 0 if kind == offered else 1
                if best is None or (-quality, exact * 10 + order) < best:
                    best, chosen = (-quality, exact * 10 + order), offered
    if not chosen:
        raise ApiError(
            406, f"listings are available as {', '.join(_TYPES)}, and the Accept header allows none of these"
        )
    return chosen


def _accepted(accept: str) -> list[tuple[str, float]]:
    ranges = []
    for piece in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in piece.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError as error:
                    raise ApiError(400, f"Invalid Accept header: {parameter!r}") from error
        ranges.append((kind, quality))
    return ranges


_LINK_FIELDS = frozenset({"slo_etag", "symlink_path", "symlink_etag", "symlink_bytes", "version_symlink"})
"""Fields that only listings in JSON have."""


def _link_fields(mark: LinkMark) -> dict[str, object]:
    """Return the fields of a link's row that are added to the usual ones or replace them.

    A client's link shows its own size and entity tag, an object with versions those of its current version.
    """
    shown: dict[str, object] = {} if mark.slo_etag is None else {"slo_etag": f'"{mark.slo_etag}"'}
    found = version_of(mark.target)
    if found is not None:
        path = f"/v1{found[0].quoted}?version-id={found[1].internal}"
        return shown | {"hash": mark.etag, "bytes": mark.size, "symlink_path": path, "version_symlink": True}
    shown["symlink_path"] = f"/v1{mark.target.quoted}"
    if mark.etag is not None:
        shown |= {"symlink_etag": mark.etag, "symlink_bytes": mark.size}
    return shown


def _plain(rows: Sequence[Row]) -> str:
    return "".join(f"{row.name}\n" for row in rows)


PolicyNames = Callable[[int], str | None]
"""Returns the name of a storage policy by its index; None for one that is not known here."""


def json_row(row: Row, policies: PolicyNames = lambda _: None) -> dict[str, object]:
    """Return a row as JSON listings show it; a container's with its policy, if `policies` knows that."""
    if isinstance(row, Subdir):
        return {"subdir": row.name}
    if isinstance(row, ContainerRow):
        modified, policy = row.put_timestamp.isoformat, policies(row.policy)
        found = {"name": row.name, "count": row.object_count, "bytes": row.bytes_used, "last_modified": modified}
        return found if policy is None else found | {"storage_policy": policy}
    content_type, mark = split_mark(row.content_type)
    shown: dict[str, object] = {
        "name": row.name,
        "hash": row.etag,
        "bytes": row.size if mark is None else mark.size,
        "content_type": content_type,
        "last_modified": row.modified.isoformat,
    }
    link = split_link(row.content_type)[1]
    if link is not None:
        return shown | _link_fields(link)
    return shown if mark is None else shown | {"slo_etag": f'"{mark.etag}"'}


def _xml_row(row: Row, policies: PolicyNames) -> str:
    if isinstance(row, Subdir):
        return f"<subdir name={quoteattr(row.name)}><name>{escape(row.name)}</name></subdir>"
    kind = "container" if isinstance(row, ContainerRow) else "object"
    fields = "".join(
        f"<{name}>{escape(str(value))}</{name}>"
        for name, value in json_row(row, policies).items()
        if name not in _LINK_FIELDS
    )
    return f"<{kind}>{fields}</{kind}>"


def _xml(rows: Sequence[Row], element: str, name: str, policies: PolicyNames) -> str:
    body = "".join(_xml_row(row, policies) for row in rows)
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{element} name={quoteattr(name)}>{body}</{element}>'
    if _NOT_XML.search(text):
        raise ApiError(406, "a name in this listing can't be written in XML; ask for format=json")
    return text


FORMS = {"text/plain": PageForm.PLAIN, "application/json": PageForm.JSON}
"""The media types whose pages may be encoded where the rows are."""


def describe(query: Mapping[str, str], media_type: str) -> dict[str, str]:
    """Return headers with the media type of a listing, and whether that depends on Accept."""
    headers = {"Content-Type": f"{media_type}; charset=utf-8"}
    return headers if "format" in query else headers | {"Vary": "Accept"}


def render_text(text: bytes, headers: Mapping[str, str]) -> web.Response:
    """Return a listing whose page was encoded where the rows are, in the form that `FORMS` names."""
    return web.Response(body=text, headers=headers) if text else web.Response(status=204, headers=headers)


def render(
    rows: Sequence[Row],
    media_type: str,
    element: str,
    name: str,
    headers: Mapping[str, str],
    policies: PolicyNames = lambda _: None,
) -> web.Response:
    """Return a listing; an empty plain one is 204. `element` is the XML root, `account` or `container`."""
    writers: dict[str, Callable[[], str]] = {
        "text/plain": lambda: _plain(rows),
        "application/json": lambda: json.dumps([json_row(row, policies) for row in rows]),
        "application/xml": lambda: _xml(rows, element, name, policies),
        "text/xml": lambda: _xml(rows, element, name, policies),
    }
    return render_text(writers[media_type]().encode(), headers)
