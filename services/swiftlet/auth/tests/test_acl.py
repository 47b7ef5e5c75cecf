"""ACLs as values: canonical form, what is refused, whom they admit, and that no text is slow to read."""

from __future__ import annotations

import time

import pytest

from swiftlet.auth.account_acl import Level, clean_account_acl, level_needed, level_of, parse_account_acl
from swiftlet.auth.acl import Acl, InvalidAcl, clean_acl, parse_acl
from swiftlet.auth.identity import Identity, Role, is_owner
from swiftlet.names import Path

SUE = Identity("AUTH_sues", "sue", frozenset())


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("bob, sue", "bob,sue"),
        ("bob , sue", "bob,sue"),
        ("bob,,,sue", "bob,sue"),
        (".referrer : *", ".r:*"),
        (".ref:*.example.com", ".r:.example.com"),
        (".referer:www.example.com", ".r:www.example.com"),
        (".r:*, .rlistings", ".r:*,.rlistings"),
        (".r: - .thief.com", ".r:-.thief.com"),
        (".r:-*.thief.com", ".r:-.thief.com"),
        (".r:-*", ".r:-*"),
        ("a:b:c", "a:b:c"),
        (" , ,", ""),
        ("", ""),
        ("*:*", "*:*"),
    ],
)
def test_the_canonical_form(text: str, clean: str) -> None:
    assert clean_acl(text, writing=False) == clean
    assert clean_acl(clean, writing=False) == clean


@pytest.mark.parametrize("text", [".r:", ".r:-", ".r: ", ".r:.", ".r:-.", ".x:*", ".: a", "ok,.r:"])
def test_what_is_no_acl(text: str) -> None:
    with pytest.raises(InvalidAcl):
        clean_acl(text, writing=False)


@pytest.mark.parametrize("text", [".r:*", ".referrer:www.example.com", "sue,.r:-x"])
def test_referrers_do_not_write(text: str) -> None:
    with pytest.raises(InvalidAcl, match="not allowed in write ACL"):
        clean_acl(text, writing=True)


@pytest.mark.parametrize(
    ("acl", "referer", "admitted"),
    [
        (".r:*", None, True),
        (".r:*", "http://any.example.org/x", True),
        (".r:www.example.com", "http://www.example.com/index.html", True),
        (".r:www.example.com", "https://WWW.example.com:8443/", True),
        (".r:www.example.com", "http://example.com/", False),
        (".r:www.example.com", None, False),
        (".r:.example.com", "http://a.example.com/", True),
        (".r:.example.com", "http://example.com/", False),
        (".r:.example.com", "http://evilexample.com/", False),
        (".r:example.com", "http://example.com@evil.org/", False),
        (".r:*,.r:-thief.com", "http://thief.com/", False),
        (".r:*,.r:-.thief.com", "http://www.thief.com/", False),
        (".r:-thief.com,.r:*", "http://thief.com/", True),
        (".r:.example.com,.r:-thief.example.com", "http://thief.example.com/", False),
        (".r:*", "http://[broken", True),
        (".r:x", "http://[broken", False),
        ("sue", "http://sue/", False),
        ("", None, False),
    ],
)
def test_referrers(acl: str, referer: str | None, admitted: bool) -> None:
    assert parse_acl(acl).admits_referrer(referer) is admitted


@pytest.mark.parametrize(
    ("acl", "admitted"),
    [
        ("sues", True),
        ("sues:sue", True),
        ("sues:*", True),
        ("*:sue", True),
        ("*:*", True),
        ("*", False),
        ("sues:sues:sue", True),
        ("*:sues:sue", True),
        ("bobs:sues:sue", False),
        ("sues:bobs:sue", False),
        ("bobs,sues:sue", True),
        ("AUTH_sues", False),
        ("sue", False),
        ("sues:bob", False),
        ("*:bob", False),
        ("SUES", False),
        (".r:*", False),
        ("", False),
    ],
)
def test_users(acl: str, admitted: bool) -> None:
    assert parse_acl(acl).admits(SUE) is admitted
    assert not parse_acl(acl).admits(None)


def test_an_account_whose_name_looks_like_a_storage_account_is_another() -> None:
    assert not Acl(grantees=frozenset({"sues"})).admits(Identity("AUTH_AUTH_sues", "sue", frozenset()))


def test_a_long_acl_is_read_in_no_time() -> None:
    began = time.perf_counter()
    for text in (".r:" + "-" * 8000, ".r:*," * 1600, "a:" * 4000, "," * 8000, ".r:" + "." * 8000):
        try:
            cleaned = clean_acl(text, writing=False)
        except InvalidAcl:
            continue
        parse_acl(cleaned).admits_referrer("http://" + "a." * 4000 + "/")
    assert time.perf_counter() - began < 1


def test_owners() -> None:
    assert is_owner(Identity("AUTH_a", "u", frozenset({Role.ADMIN})), "AUTH_a")
    assert not is_owner(Identity("AUTH_a", "u", frozenset({Role.ADMIN})), "AUTH_b")
    assert not is_owner(Identity("AUTH_a", "u", frozenset({Role.USER, Role.READER})), "AUTH_a")
    assert is_owner(Identity("AUTH_a", "u", frozenset({Role.RESELLER_ADMIN})), "AUTH_b")


def test_account_acls_have_a_canonical_form() -> None:
    assert clean_account_acl(' {"read-only": ["b", "a"], "admin": [] } ') == '{"read-only":["a","b"]}'
    assert clean_account_acl('{"admin":["\u00e9"]}') == '{"admin":["\\u00e9"]}'
    assert clean_account_acl("") == clean_account_acl("{}") == clean_account_acl('{"admin":[]}') == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Syntax error"),
        ("[]", "Syntax error"),
        ("null", "Syntax error"),
        ("7", "Syntax error"),
        ("[" * 8000, "Syntax error"),
        ('{"a":' * 4000, "Syntax error"),
        ('{"write":["a"]}', 'Key "write" not recognized'),
        ('{"admin":"a"}', 'Value for key "admin" must be a list'),
        ('{"admin":[1]}', 'Elements of "admin" list must be strings'),
    ],
)
def test_what_is_no_account_acl(text: str, reason: str) -> None:
    with pytest.raises(InvalidAcl, match=reason):
        parse_account_acl(text)
    assert level_of(SUE, text) is Level.NONE


def test_levels() -> None:
    acl = '{"admin":["bobs:bob"],"read-write":["sues"],"read-only":["sues:sue","*:eve"]}'
    assert level_of(SUE, acl) is Level.READ_WRITE
    assert level_of(Identity("AUTH_bobs", "bob", frozenset()), acl) is Level.ADMIN
    assert level_of(Identity("AUTH_x", "eve", frozenset()), acl) is Level.READ_ONLY
    assert level_of(Identity("AUTH_x", "bob", frozenset()), acl) is Level.NONE


@pytest.mark.parametrize(
    ("method", "path", "level"),
    [
        ("GET", Path("a"), Level.READ_ONLY),
        ("HEAD", Path("a", "c", "o"), Level.READ_ONLY),
        ("PUT", Path("a", "c"), Level.READ_WRITE),
        ("DELETE", Path("a", "c", "o"), Level.READ_WRITE),
        ("POST", Path("a"), Level.ADMIN),
        ("PUT", Path("a"), None),
        ("DELETE", Path("a"), None),
    ],
)
def test_what_a_level_is_for(method: str, path: Path, level: Level | None) -> None:
    assert level_needed(method, path) is level
