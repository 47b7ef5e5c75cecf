"""The realms file, and signatures as OpenStack Swift makes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swiftlet.container_sync.realms import InvalidTarget, RealmsFile, parse_realms
from swiftlet.container_sync.signature import Signed, is_signed, parse_signed, sign, signature_of
from swiftlet.errors import SettingsError

TEXT = """
[DEFAULT]
mtime_check_interval = 60

[us]
key = first
key2 = second
cluster_East = http://east/v1/
cluster_west = https://west:8443/prefix/v1
[Eu]
key = other
"""


def test_what_a_target_stands_for() -> None:
    realms = parse_realms(TEXT, "file")
    for text in ("//us/east/AUTH_a/c", "//US/EAST/AUTH_a/c/"):
        target = realms.target(text)
        assert (target.realm, target.url, target.key) == ("US", "http://east/v1/AUTH_a/c", "first")
    assert realms.target("//us/west/AUTH_a/my%20c").url == "https://west:8443/prefix/v1/AUTH_a/my%20c"
    assert "first" not in repr(target) + repr(realms)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://east/v1/AUTH_a/c", "full URLs"),
        ("/us/east/AUTH_a/c", "//realm/cluster/account/container"),
        ("//us/east/AUTH_a", "//realm/cluster/account/container"),
        ("//us/east/AUTH_a/c/o", "//realm/cluster/account/container"),
        ("//us/east//c", "//realm/cluster/account/container"),
        ("//us/east/AUTH_a/c?x", "//realm/cluster/account/container"),
        ("//us/east/AUTH_a/%zz", "percent-encoded"),
        ("//us/east/AUTH_a/ü", "percent-encode"),
        ("//us/east/AUTH_a/c d", "percent-encode"),
        ("//asia/east/AUTH_a/c", "no realm 'asia'"),
        ("//us/north/AUTH_a/c", "no cluster 'north'"),
        ("//eu/east/AUTH_a/c", "no cluster 'east'"),
    ],
)
def test_what_is_no_target(text: str, said: str) -> None:
    with pytest.raises(InvalidTarget, match=said.replace("'", ".")):
        parse_realms(TEXT, "file").target(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[us]\n", "has no key"),
        ("[us]\nkey = k\nclusters_a = http://a", "unknown option 'clusters_a'"),
        ("[us]\nkey = k\ncluster_a = ftp://a", "cluster_a: 'ftp://a' is no URL"),
        ("[us]\nkey = k\ncluster_a = http://user:secret@a", "is no URL"),
        ("[us]\nkey = k\ncluster_a = http://a:99999", "is no URL"),
        ("[us]\nkey = k\nkey = hidden", "twice"),
        ("[us]\nkey = k\n[us]\nkey = hidden", "two sections"),
        ("[us]\nkey = %(hidden", "'%'"),
        ("[us]\nhidden", "line 2"),
        ("key = hidden", "line 1"),
    ],
)
def test_files_that_are_refused_say_why_without_a_key(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        parse_realms(text, "the file")
    assert "the file" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "realms.conf"
    with pytest.raises(SettingsError, match="can't read"):
        RealmsFile(file)
    file.write_text(TEXT)
    realms = RealmsFile(file, "//us/EAST")
    assert realms.shown() == {"realms": {"US": {"clusters": {"EAST": {"current": True}, "WEST": {}}}}}
    assert not realms.reload()
    file.write_text("[us]\nkey = anew\n")
    os.utime(file, ns=(1, 1))
    assert realms.reload()
    assert realms.realms.realms["US"].key == "anew"
    file.write_bytes(b"[us]\nkey = \xff\n")
    with pytest.raises(SettingsError, match="UTF-8"):
        realms.reload()
    assert realms.realms.realms["US"].key == "anew"
    without = RealmsFile(None)
    assert (without.enabled, without.reload()) == (False, False)


def test_a_signature_is_that_of_openstack_swift() -> None:
    """The expected value is from the unit tests of OpenStack Swift."""
    made = signature_of("GET", "/some/path", "1387212345.67890", "my_nonce", "realm_key", "user_key")
    assert made == "5a6eb486eb7b44ae1b1f014187a94529c3f9c8f9"
    assert signature_of("GET", "/p", None, "n", "r", "u") == signature_of("GET", "/p", "0", "n", "r", "u")


def test_what_is_signed() -> None:
    signed = sign("PUT", "/v1/a/c/o", "1.00000", "US", "key", "ü")
    assert parse_signed(signed.header) == signed
    assert parse_signed("US only") is None
    assert is_signed(signed, "PUT", "/v1/a/c/o", "1.00000", ["other", "key"], "ü")
    for other in (
        ("POST", "/v1/a/c/o", "1.00000", ["key"], "ü"),
        ("PUT", "/v1/a/c/p", "1.00000", ["key"], "ü"),
        ("PUT", "/v1/a/c/o", "2.00000", ["key"], "ü"),
        ("PUT", "/v1/a/c/o", "1.00000", ["other"], "ü"),
        ("PUT", "/v1/a/c/o", "1.00000", ["key"], "u"),
    ):
        assert not is_signed(signed, *other)
    assert not is_signed(Signed("US", signed.nonce, "ü"), "PUT", "/v1/a/c/o", "1.00000", ["key"], "ü")
