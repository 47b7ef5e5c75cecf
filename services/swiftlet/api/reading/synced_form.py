"""The form in which container sync sends an object to another cluster: as it is stored, with the headers of a PUT.

A manifest goes with its segments' names, a link with its target's, whether those are copied too or not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from swiftlet.api.http.content_types import split_mark
from swiftlet.api.reading.links import Link
from swiftlet.api.reading.readables import STATIC_LARGE_OBJECT
from swiftlet.expiry.tasks import is_expired
from swiftlet.model import ObjectInfo

_MD5 = re.compile(r"[0-9a-f]{32}", re.ASCII)


def synced_form(info: ObjectInfo, now_s: Callable[[], float] = time.time) -> Mapping[str, str] | None:
    """Return the headers of a PUT that stores an object elsewhere, without its length; None for one that is not
    copied: an expired one, and a version's link.
    """
    link = Link.of(info)
    if is_expired(info.metadata, now_s()) or (link is not None and link.version is not None):
        return None
    headers = dict(info.metadata)
    headers |= {"Content-Type": split_mark(info.content_type)[0], "X-Timestamp": info.modified.normal}
    if _MD5.fullmatch(info.etag):
        headers["Etag"] = info.etag
    if STATIC_LARGE_OBJECT in info.sysmeta:
        headers[STATIC_LARGE_OBJECT] = "True"
    return headers | (link.headers if link is not None else {})
