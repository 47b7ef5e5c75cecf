"""Signatures: every form that is read, every one that is not, and that they are compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from swiftlet.auth.signatures import parse_signature

ALL = ("sha1", "sha256", "sha512")
KEY, MESSAGE = "k\u00e9y", "GET\n1\n/v1/a/c/\u00f6"


def mac(digest: str) -> bytes:
    return hmac.new(KEY.encode(), MESSAGE.encode(), getattr(hashlib, digest)).digest()


def forms(digest: str) -> list[str]:
    plain, url = base64.b64encode(mac(digest)).decode(), base64.urlsafe_b64encode(mac(digest)).decode()
    encoded = [plain, url, plain.rstrip("="), url.rstrip("=")]
    return [mac(digest).hex(), mac(digest).hex().upper(), *(f"{digest}:{text}" for text in encoded)]


@pytest.mark.parametrize("digest", ALL)
def test_all_forms_are_read(digest: str) -> None:
    for text in forms(digest):
        signature = parse_signature(text, ALL)
        assert signature is not None
        assert signature.fits(KEY, MESSAGE)
        assert signature.first_fitting(["other", KEY], ["no", MESSAGE]) == KEY
        assert not signature.fits(KEY, MESSAGE + "x")
        assert not signature.fits("other", MESSAGE)
        assert signature.first_fitting(["other"], [MESSAGE]) is None
        assert parse_signature(text, [name for name in ALL if name != digest]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 63,
        "g" * 64,
        "\u0661" * 64,
        "md5:abcd",
        "sha256",
        "sha256:!!!!",
        "sha256:a",
        ":abcd",
        "SHA256:abcd",
        "sha256:" + "A" * 600,
        "__class__:abcd",
        "sha256: " + "A" * 43,
    ],
)
def test_what_is_no_signature(text: str) -> None:
    assert parse_signature(text, ALL) is None


def test_a_signature_of_the_wrong_length_fits_nothing() -> None:
    for text in ("sha256:", "sha256:" + base64.b64encode(mac("sha256")[:8]).decode()):
        signature = parse_signature(text, ALL)
        assert signature is not None
        assert not signature.fits(KEY, MESSAGE)


def test_they_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    signature = parse_signature(mac("sha256").hex(), ALL)
    assert signature is not None
    assert signature.fits(KEY, MESSAGE)
    assert compared == [(mac("sha256"), mac("sha256"))]
