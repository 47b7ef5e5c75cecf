"""Signatures of temporary URLs and forms: HMACs in hex, or in Base64 with the name of the hash before them.

The hash is determined by the number of hex digits, or by its name. Comparisons take constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass

_BY_HEX_DIGITS = {40: "sha1", 64: "sha256", 128: "sha512"}
_MAX_CHARS = 512


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a temporary URL or a form, which is well-formed and not checked yet."""

    digest: str
    """Name of the hash function."""
    mac: bytes

    def fits(self, key: str, message: str) -> bool:
        """Return whether this key signed this message."""
        mac = hmac.digest(key.encode(), message.encode(), self.digest)
        return hmac.compare_digest(mac, self.mac)

    def first_fitting(self, keys: Iterable[str], messages: Collection[str]) -> str | None:
        """Return the key that signed one of the messages; all combinations are tried until one fits."""
        return next((key for key in keys for message in messages if self.fits(key, message)), None)


def parse_signature(text: str, allowed: Collection[str]) -> Signature | None:
    """Return the signature, if it is by one of the allowed hash functions; None for anything else."""
    if len(text) > _MAX_CHARS or not text.isascii():
        return None
    name, colon, encoded = text.partition(":")
    digest = name if colon else _BY_HEX_DIGITS.get(len(text), "")
    if digest not in allowed:
        return None
    try:
        return Signature(digest, _from_base64(encoded) if colon else bytes.fromhex(text))
    except (ValueError, binascii.Error):
        return None


def _from_base64(text: str) -> bytes:
    """Decode Base64 of either alphabet, with or without padding."""
    stripped = text.rstrip("=")
    if not set("+/") & set(stripped):
        stripped = stripped.replace("-", "+").replace("_", "/")
    return base64.b64decode(stripped + "=" * (-len(stripped) % 4), validate=True)
