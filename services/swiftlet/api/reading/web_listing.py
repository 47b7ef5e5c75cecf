"""Renders listings as HTML pages. Pure. Names are untrusted text, so everything is escaped where it is inserted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from swiftlet.api.http.content_types import split_mark
from swiftlet.api.login.temp_url import TempUrl
from swiftlet.model import ObjectRow, Subdir

_UNITS = "KMGTPEZY"
_STYLE = """  <style type="text/css">
   h1 {font-size: 1em; font-weight: bold;}
   th {text-align: left; padding: 0px 1em 0px 1em;}
   td {padding: 0px 1em 0px 1em;}
   a {text-decoration: none;}
  </style>
"""


@dataclass(frozen=True, slots=True)
class Site:
    """The settings of a container's owner in `X-Container-Meta-Web-*`."""

    index: str = ""
    error: str = ""
    listings: bool = False
    css: str = ""
    label: str = ""
    directory_type: str = ""

    @property
    def any(self) -> bool:
        """Return whether it is a site at all."""
        return bool(self.index or self.error or self.listings)


def readable_size(size: int) -> str:
    """Return a size for people: `0`, `999`, `1Ki`, `2Mi`, as in the reference."""
    value, unit = float(size), -1
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return str(size) if unit < 0 else f"{round(value)}{_UNITS[unit]}i"


def css_link(css: str, prefix: str) -> str:
    """Return the style sheet's URL, relative to a listing of `prefix`; absolute ones are returned unchanged."""
    if css.startswith(("/", "http://", "https://")):
        return quote(css, safe=":/")
    return "../" * prefix.count("/") + quote(css)


def _head(site: Site, place: str, prefix: str) -> str:
    label = _label(site, place)
    style = f'  <link rel="stylesheet" type="text/css" href="{escape(css_link(site.css, prefix))}" />\n'
    return (
        "<!DOCTYPE html>\n<html>\n <head>\n"
        f"  <title>Listing of {escape(label)}</title>\n"
        f"{style if site.css else _STYLE} </head>\n"
    )


def _label(site: Site, place: str) -> str:
    """Return the heading; `place` is the path from `/v1` on."""
    return f"{site.label}/{'/'.join(place.split('/')[4:])}" if site.label else place


def listing_disabled(site: Site, place: str) -> str:
    """Return the page in place of a listing that the owner has not enabled."""
    index = f"  <p>The index page {escape(site.index)} is not there.</p>\n" if site.index else ""
    return (
        f"{_head(site, place, '')} <body>\n  <h1>Web Listing Disabled</h1>\n"
        "  <p>The owner of this web site has disabled web listing. If that is you, set"
        f" X-Container-Meta-Web-Listings.</p>\n{index} </body>\n</html>\n"
    )


def _parameters(url: TempUrl | None) -> str:
    """Return the parameters that each link needs to be allowed what this page was."""
    if url is None or url.prefix is None:
        return ""
    pieces = [
        f"temp_url_prefix={quote(url.prefix)}",
        f"temp_url_expires={quote(url.given, safe='')}",
        f"temp_url_sig={quote(url.signature, safe='')}",
    ]
    if url.ip_range:
        pieces.append(f"temp_url_ip_range={quote(url.ip_range, safe='')}")
    if url.inline:
        pieces.append("inline")
    return "?" + "&amp;".join(pieces)


def listing_page(
    site: Site, place: str, prefix: str, rows: Sequence[ObjectRow | Subdir], url: TempUrl | None = None
) -> str:
    """Return a listing of `prefix`, directories first."""
    parameters = _parameters(url)
    lowest = len(url.prefix or "") if url is not None else 0
    lines = [_row("item", "parent", "../", "../", parameters)] if len(prefix) > lowest else []
    lines += _directories(prefix, rows, parameters)
    lines += _objects(prefix, rows, parameters)
    return (
        f"{_head(site, place, prefix)} <body>\n"
        f'  <h1 id="title">Listing of {escape(_label(site, place))}</h1>\n'
        '  <table id="listing">\n   <tr id="heading">\n    <th class="colname">Name</th>\n'
        '    <th class="colsize">Size</th>\n    <th class="coldate">Date</th>\n   </tr>\n'
        f"{''.join(lines)}  </table>\n </body>\n</html>\n"
    )


def _directories(prefix: str, rows: Sequence[ObjectRow | Subdir], parameters: str) -> Iterator[str]:
    for row in rows:
        if isinstance(row, Subdir):
            name = row.name[len(prefix) :]
            yield _row("item subdir", "", _link(name), name, parameters)


def _objects(prefix: str, rows: Sequence[ObjectRow | Subdir], parameters: str) -> Iterator[str]:
    for row in rows:
        if isinstance(row, Subdir):
            continue
        name = row.name[len(prefix) :]
        content_type, mark = split_mark(row.content_type)
        kinds = " ".join(f"type-{part.lower()}" for part in content_type.split("/"))
        size = readable_size(row.size if mark is None else mark.size)
        date = row.modified.isoformat.split(".", 1)[0].replace("T", " ")
        yield _row(f"item {kinds}", "", _link(name), name, parameters, size, date)


def _link(name: str) -> str:
    """Return a relative link; no part of a name can be taken for `..` or for a scheme."""
    return "./" + quote(name).replace(".", "%2E")


def _row(
    kind: str, ident: str, link: str, name: str, parameters: str, size: str = "&nbsp;", date: str = "&nbsp;"
) -> str:
    named = f' id="{ident}"' if ident else ""
    return (
        f'   <tr{named} class="{escape(kind)}">\n'
        f'    <td class="colname"><a href="{escape(link)}{parameters}">{escape(name)}</a></td>\n'
        f'    <td class="colsize">{size}</td>\n    <td class="coldate">{date}</td>\n   </tr>\n'
    )
