"""Digests as ETags have them: MD5 in hex, or `xxh3-` and XXH3-128 in hex."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Protocol

import xxhash

XXH3 = "xxh3-"
_SHORT = "xxh3-64:"
_MD5 = re.compile(r"[0-9a-f]{32}")
_XXH3 = re.compile(r"xxh3-[0-9a-f]{32}")
Buffer = bytes | bytearray | memoryview


class Digest(Protocol):
    """A digest of the bytes that were added so far."""

    def update(self, data: Buffer, /) -> None:
        """Hash the next bytes."""

    def etag(self) -> str:
        """Return the ETag of all bytes so far."""


class _Md5:
    def __init__(self) -> None:
        self._state = hashlib.md5(usedforsecurity=False)

    def update(self, data: Buffer, /) -> None:
        self._state.update(data)

    def etag(self) -> str:
        return self._state.hexdigest()


class _Xxh3Short:
    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: Buffer, /) -> None:
        self._state.update(data)

    def etag(self) -> str:
        return checksum_of(self._state.intdigest())


class _Xxh3:
    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def update(self, data: Buffer, /) -> None:
        self._state.update(data)

    def etag(self) -> str:
        return XXH3 + self._state.hexdigest()


def checksum_of(xxh3: int) -> str:
    """Return the XXH3-64 of bytes as the checksum that devices tell of an object."""
    return f"{_SHORT}{xxh3:016x}"


def digest_for(etag: str) -> Digest | None:
    """Return a digest that makes ETags, or checksums, like this one; None when it is not made from bytes."""
    if _MD5.fullmatch(etag):
        return _Md5()
    if etag.startswith(_SHORT):
        return _Xxh3Short()
    return _Xxh3() if _XXH3.fullmatch(etag) else None


def etag_of(data: Buffer, like: str) -> str | None:
    """Return the ETag of bytes, made as another one was; None when that one is not made from bytes."""
    digest = digest_for(like)
    if digest is None:
        return None
    digest.update(data)
    return digest.etag()


class Both:
    """The digests of bytes that are sent before it is known which of them their ETag will be."""

    def __init__(self) -> None:
        """Begin with no bytes."""
        self._digests: list[Digest] = [_Md5(), _Xxh3()]

    def update(self, data: Buffer) -> None:
        """Hash the next bytes."""
        for digest in self._digests:
            digest.update(data)

    def matches(self, etag: str) -> bool:
        """Whether the ETag is one of the digests of all bytes so far."""
        return any(digest.etag() == etag for digest in self._digests)


def etag_of_segments(etags: Iterable[str]) -> str:
    """Return the ETag of a static large object of whole segments."""
    return hashlib.md5("".join(etags).encode(), usedforsecurity=False).hexdigest()
