"""Conditions and ranges against the RFC's own examples and the edges."""

from __future__ import annotations

import pytest

from swiftlet.api.http.conditions import Verdict, judge, range_applies
from swiftlet.api.http.ranges import MAX_RANGES, parse_range, resolve

ETAG = "0123456789abcdef0123456789abcdef"
THEN = "Sat, 29 Oct 1994 19:43:31 GMT"
THEN_S = 783459811
LATER = "Sat, 29 Oct 1994 19:43:32 GMT"
EARLIER = "Sat, 29 Oct 1994 19:43:30 GMT"


@pytest.mark.parametrize(
    ("headers", "verdict"),
    [
        ({}, Verdict.GO),
        ({"If-Match": ETAG}, Verdict.GO),
        ({"If-Match": f'"{ETAG}"'}, Verdict.GO),
        ({"If-Match": "*"}, Verdict.GO),
        ({"If-Match": f'"x", "{ETAG}"'}, Verdict.GO),
        ({"If-Match": '"x"'}, Verdict.FAILED),
        ({"If-None-Match": ETAG}, Verdict.NOT_MODIFIED),
        ({"If-None-Match": f'W/"{ETAG}"'}, Verdict.NOT_MODIFIED),
        ({"If-None-Match": "*"}, Verdict.NOT_MODIFIED),
        ({"If-None-Match": "x"}, Verdict.GO),
        ({"If-Modified-Since": THEN}, Verdict.NOT_MODIFIED),
        ({"If-Modified-Since": EARLIER}, Verdict.GO),
        ({"If-Modified-Since": "yesterday"}, Verdict.GO),
        ({"If-Modified-Since": "Sat, 99 Foo 99999 19:43:31 GMT"}, Verdict.GO),
        ({"If-Unmodified-Since": THEN}, Verdict.GO),
        ({"If-Unmodified-Since": EARLIER}, Verdict.FAILED),
        ({"If-None-Match": "x", "If-Modified-Since": LATER}, Verdict.GO),
        ({"If-Match": ETAG, "If-Unmodified-Since": EARLIER}, Verdict.FAILED),
        ({"If-Match": ETAG, "If-None-Match": ETAG}, Verdict.NOT_MODIFIED),
    ],
)
def test_conditions(headers: dict[str, str], verdict: Verdict) -> None:
    assert judge(headers, ETAG, THEN_S) is verdict


def test_if_range() -> None:
    assert range_applies({}, ETAG, THEN_S)
    assert range_applies({"If-Range": f'"{ETAG}"'}, ETAG, THEN_S)
    assert range_applies({"If-Range": THEN}, ETAG, THEN_S)
    assert not range_applies({"If-Range": EARLIER}, ETAG, THEN_S)
    assert not range_applies({"If-Range": '"other"'}, ETAG, THEN_S)


@pytest.mark.parametrize(
    ("header", "spans"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-499", [(0, 100)]),
        ("bytes=-10", [(90, 100)]),
        ("bytes=-1000", [(0, 100)]),
        ("bytes=90-", [(90, 100)]),
        ("Bytes = 5-9", [(5, 10)]),
        ("bytes=0-1, 50-51,-1", [(0, 2), (50, 52), (99, 100)]),
        ("bytes=50-51,0-1", [(50, 52), (0, 2)]),
        ("bytes=0-1,200-300", [(0, 2)]),
    ],
)
def test_ranges_within_100_bytes(header: str, spans: list[tuple[int, int]]) -> None:
    assert resolve(parse_range(header), 100) == spans


@pytest.mark.parametrize(
    "header", ["bytes=100-", "bytes=-0", "bytes=0-1,0-1,0-1,0-1", "bytes=" + "0-0," * MAX_RANGES + "1-1"]
)
def test_unsatisfiable(header: str) -> None:
    assert parse_range(header)
    assert resolve(parse_range(header), 100) == []


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-4",
        "lines=1-2",
        "bytes=1-2,x",
        "bytes=--1",
        "bytes=٣-٤",
    ],
)
def test_not_understood_means_no_range(header: str | None) -> None:
    assert parse_range(header) == []


def test_nothing_of_an_empty_object() -> None:
    assert resolve(parse_range("bytes=0-"), 0) == []
