"""Listings as text, JSON and XML, and which of them is sent."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from swiftlet.api.http.listings import Row, choose_type, describe, parse_listing, render
from swiftlet.api.http.problems import ApiError
from swiftlet.model import ContainerRow, ListingQuery, ObjectRow, Subdir
from swiftlet.timestamp import Timestamp

NAME = "a<b>&\"'\u65e5\u672c/\U0001f600"
WHEN = Timestamp.parse("1700000000.12345")
OBJECT = ObjectRow(NAME, WHEN, 7, "e" * 32, 'text/"<plain>')
BOX = ContainerRow(NAME, WHEN, object_count=3, bytes_used=9)


def text_of(rows: list[Row], media_type: str, element: str = "container") -> str:
    """A listing's body."""
    headers = {"X-Extra": "1"} | describe({}, media_type)
    response = render(rows, media_type, element, NAME, headers, {0: "gold"}.get)
    assert response.status == 200
    assert response.headers["X-Extra"] == "1"
    assert response.headers["Content-Type"] == f"{media_type}; charset=utf-8"
    assert response.headers["Vary"] == "Accept"
    assert isinstance(response.body, bytes)
    return response.body.decode()


def test_plain() -> None:
    assert text_of([OBJECT, Subdir("d/")], "text/plain") == f"{NAME}\nd/\n"
    empty = render([], "text/plain", "container", NAME, {"X-Extra": "1"})
    assert (empty.status, empty.body, empty.headers["X-Extra"]) == (204, None, "1")


def test_json() -> None:
    assert json.loads(text_of([OBJECT, Subdir("d/")], "application/json")) == [
        {
            "name": NAME,
            "hash": "e" * 32,
            "bytes": 7,
            "content_type": 'text/"<plain>',
            "last_modified": "2023-11-14T22:13:20.123450",
        },
        {"subdir": "d/"},
    ]
    assert json.loads(text_of([BOX], "application/json")) == [
        {
            "name": NAME,
            "count": 3,
            "bytes": 9,
            "last_modified": "2023-11-14T22:13:20.123450",
            "storage_policy": "gold",
        }
    ]
    unknown = ContainerRow("c", WHEN, policy=7)
    assert "storage_policy" not in json.loads(text_of([unknown], "application/json"))[0]
    assert json.loads(text_of([], "application/json")) == []


@pytest.mark.parametrize("media_type", ["application/xml", "text/xml"])
def test_xml(media_type: str) -> None:
    root = ElementTree.fromstring(text_of([OBJECT, Subdir('d"<&/')], media_type))
    assert (root.tag, root.attrib) == ("container", {"name": NAME})
    entry, subdir = root
    assert {child.tag: child.text for child in entry} == {
        "name": NAME,
        "hash": "e" * 32,
        "bytes": "7",
        "content_type": 'text/"<plain>',
        "last_modified": "2023-11-14T22:13:20.123450",
    }
    assert (subdir.tag, subdir.attrib, subdir[0].text) == ("subdir", {"name": 'd"<&/'}, 'd"<&/')
    root = ElementTree.fromstring(text_of([BOX], media_type, "account"))
    assert (root.tag, root[0].tag, [child.tag for child in root[0]]) == (
        "account",
        "container",
        ["name", "count", "bytes", "last_modified", "storage_policy"],
    )
    assert len(ElementTree.fromstring(text_of([], media_type))) == 0


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x1f", "\ufffe", "\uffff"])
def test_what_xml_cannot_say_is_406_and_fine_elsewhere(character: str) -> None:
    row = ObjectRow(f"a{character}b", WHEN, 1, "e" * 32, "text/plain")
    for bad in (row, Subdir(row.name), ObjectRow("a", WHEN, 1, "e" * 32, row.name)):
        with pytest.raises(ApiError) as caught:
            render([bad], "application/xml", "container", "c", {})
        assert caught.value.status == 406
        assert "format=json" in str(caught.value)
    assert json.loads(text_of([row], "application/json"))[0]["name"] == row.name


@pytest.mark.parametrize("character", ["\t", "\n", "\r", " ", "\x7f", "\ud7ff", "\ue000", "\ufffd", "\U0010ffff"])
def test_what_xml_can_say_is_said(character: str) -> None:
    assert f"a{character}b" in text_of([Subdir(f"a{character}b")], "application/xml")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "text/plain"),
        ("", "text/plain"),
        (" ", "text/plain"),
        ("*/*", "text/plain"),
        ("text/*", "text/plain"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        ("APPLICATION/XML", "application/xml"),
        ("text/xml", "text/xml"),
        ("text/plain, application/json", "text/plain"),
        ("application/xml;q=0.5, application/json;q=0.9", "application/json"),
        ("application/xml, application/json;q=0.9, */*;q=0.1", "application/xml"),
        ("*/*, application/json", "application/json"),
        ("text/html, application/xml;q=0.9, */*;q=0.8", "application/xml"),
        ("application/json;charset=utf-8", "application/json"),
        ("application/json; q=0.0, text/xml ; q=0.001", "text/xml"),
        ("text/plain;q=0, */*", "application/json"),
        ("application/json;q=nan, text/plain", "text/plain"),
    ],
)
def test_accept(accept: str | None, chosen: str) -> None:
    assert choose_type({}, accept) == chosen


@pytest.mark.parametrize("accept", ["image/png", "application/json;q=0", "text/plain;q=-1", "nonsense", "*/*;q=0"])
def test_nothing_acceptable_is_406(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        choose_type({}, accept)
    assert caught.value.status == 406


@pytest.mark.parametrize("accept", ["text/plain;q=", "text/plain;q=high", "*/*;q=0.1.2"])
def test_a_bad_quality_is_400(accept: str) -> None:
    with pytest.raises(ApiError) as caught:
        choose_type({}, accept)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("word", "chosen"),
    [("json", "application/json"), ("XML", "application/xml"), ("plain", "text/plain"), ("yaml", "text/plain")],
)
def test_format_beats_accept(word: str, chosen: str) -> None:
    assert choose_type({"format": word}, "image/png") == chosen


def test_parameters() -> None:
    assert parse_listing({}, 50) == ListingQuery(limit=50)
    assert parse_listing({"limit": "", "path": "", "reverse": "no"}, 50) == ListingQuery(limit=50, path="")
    given = {"limit": "50", "marker": "m", "end_marker": "e", "prefix": "p", "delimiter": "/", "reverse": "On"}
    assert parse_listing(given, 50) == ListingQuery(50, "m", "e", "p", "/", None, True)
    assert parse_listing({"limit": "0"}, 50).limit == 0


@pytest.mark.parametrize("limit", ["51", "9" * 11, "9" * 5000])
def test_limits_that_are_412(limit: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_listing({"limit": limit}, 50)
    assert (caught.value.status, str(caught.value)) == (412, "Maximum limit is 50")


@pytest.mark.parametrize("limit", ["-1", "1.5", "ten", " 1", "\u0663", "0x1"])
def test_a_limit_that_is_no_number_is_ignored(limit: str) -> None:
    assert parse_listing({"limit": limit}, 50).limit == 50
