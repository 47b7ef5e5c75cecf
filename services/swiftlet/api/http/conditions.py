"""Conditional requests: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since (RFC 9110, section 13)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum


class Verdict(Enum):
    """The outcome of a request's conditions."""

    GO = 200
    NOT_MODIFIED = 304
    FAILED = 412


def parse_http_date(text: str) -> int | None:
    """Return whole seconds since the epoch; None for anything that is not an HTTP date (it is then ignored)."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return int(moment.timestamp())
    except (OverflowError, ValueError):
        return None


def etags(header: str) -> set[str]:
    """Return the entity tags of a list, unquoted and without weak marks; `*` stays as it is."""
    tags = (tag.strip() for tag in header.split(","))
    return {tag.removeprefix("W/").strip('"') for tag in tags if tag}


def _matches(header: str, etag: str) -> bool:
    tags = etags(header)
    return "*" in tags or etag in tags


def may_write(headers: Mapping[str, str], etag: str, modified_s: int) -> bool:
    """Return whether If-Match and If-Unmodified-Since allow a change of this version; each counts if it is sent."""
    if "If-Match" in headers and not _matches(headers["If-Match"], etag):
        return False
    if "If-Unmodified-Since" not in headers:
        return True
    limit = parse_http_date(headers["If-Unmodified-Since"])
    return limit is None or modified_s <= limit


def judge(headers: Mapping[str, str], etag: str, modified_s: int) -> Verdict:
    """Weigh a GET's or HEAD's conditions against an entity tag and its Last-Modified in whole seconds.

    Both conditions for proceeding have to hold, as in OpenStack Swift; RFC 9110 would ignore the date. For a 304,
    If-Modified-Since counts only without If-None-Match, as a second is too long to tell versions apart.
    """
    if not may_write(headers, etag, modified_s):
        return Verdict.FAILED
    if "If-None-Match" in headers:
        if _matches(headers["If-None-Match"], etag):
            return Verdict.NOT_MODIFIED
    elif "If-Modified-Since" in headers:
        since = parse_http_date(headers["If-Modified-Since"])
        if since is not None and modified_s <= since:
            return Verdict.NOT_MODIFIED
    return Verdict.GO


def range_applies(headers: Mapping[str, str], etag: str, modified_s: int) -> bool:
    """Return whether If-Range (an entity tag or a date) still allows the Range; true when there is none."""
    condition = headers.get("If-Range")
    if condition is None:
        return True
    date = parse_http_date(condition)
    if date is not None:
        return modified_s == date
    return condition.strip('"') == etag
