"""Names: taking paths apart strictly, and placing them."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.errors import InvalidName, NameTooLong
from swiftlet.names import HashPath, Path, parse_path

segment = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60)
object_name = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(segment, segment, object_name)
def test_a_quoted_path_comes_apart_into_its_names(account: str, container: str, obj: str) -> None:
    for path in (Path(account), Path(account, container), Path(account, container, obj)):
        assert parse_path(path.quoted) == path


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("/a", Path("a")),
        ("/a/", Path("a")),
        ("/a/c", Path("a", "c")),
        ("/a/c/", Path("a", "c")),
        ("/a/c/o/", Path("a", "c", "o/")),
        ("/a/c//o", Path("a", "c", "/o")),
        ("/a/c/../..", Path("a", "c", "../..")),
        ("/a/c/%2e%2E%2f", Path("a", "c", "../")),
        ("/a/%25", Path("a", "%")),
        ("/a/b+c", Path("a", "b+c")),
    ],
)
def test_paths(raw: str, path: Path) -> None:
    assert parse_path(raw) == path


@pytest.mark.parametrize(
    "raw",
    ["", "a", "/", "//c", "/a//o", "/a/%", "/a/%4", "/a/%zz", "/a/%00", "/a/%ff", "/a/%c0%af", "/a%2fb/c", "/a/b%2fc"],
)
def test_what_is_no_path(raw: str) -> None:
    with pytest.raises(InvalidName):
        parse_path(raw)


@pytest.mark.parametrize(
    ("fits", "over"),
    [
        ("/" + "a" * 256, "/" + "a" * 257),
        ("/a/" + "c" * 256, "/a/" + "c" * 257),
        ("/a/c/" + "o" * 1024, "/a/c/" + "o" * 1025),
        ("/a/c/" + "%C3%A9" * 512, "/a/c/" + "%C3%A9" * 512 + "x"),
    ],
)
def test_limits_count_bytes(fits: str, over: str) -> None:
    parse_path(fits)
    with pytest.raises(NameTooLong):
        parse_path(over)


def test_the_hash_is_md5_between_the_secrets() -> None:
    expected = hashlib.md5(b"pre/a/c/\xc3\xa9post", usedforsecurity=False).digest()
    assert HashPath(b"pre", b"post")("a", "c", "\u00e9") == expected
    assert HashPath(b"pre", b"post").of(Path("a", "c", "\u00e9")) == expected
    assert HashPath()("a") == hashlib.md5(b"/a", usedforsecurity=False).digest()
