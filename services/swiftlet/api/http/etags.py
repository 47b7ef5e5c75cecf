"""The ETag of a new object: the MD5 of its bytes, or `xxh3-` and their XXH3-128 where its storage policy says so.

A client that sends the MD5 of a body compares ETags with MD5, so its object has the MD5 as its ETag in every policy.
Otherwise MD5, which takes most of the processor time of storing an object, is not computed for such a policy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from swiftlet_native import Hasher

from swiftlet.api.http.problems import ApiError
from swiftlet.model import ObjectInfo
from swiftlet.settings.sections import EtagKind

PREFIX = "xxh3-"
"""Before the 32 digits, so that nobody takes them for an MD5."""
_MD5 = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Etag:
    """Computes and checks the ETag of one new object."""

    uses_md5: bool
    given: str | None
    """The header `ETag` as the client sent it, including quotes."""
    copied: ObjectInfo | None = None
    """The object that this is a complete copy of."""

    @classmethod
    def of(cls, kind: EtagKind, given: str | None, copied: ObjectInfo | None = None) -> Etag:
        """Return the ETag of an object in a policy whose `etag` is `kind`."""
        return cls(kind == "md5" or (given is not None and _MD5.fullmatch(_plain(given)) is not None), given, copied)

    @classmethod
    def kept(cls, copied: ObjectInfo) -> Etag:
        """Return the ETag of an object that is stored a second time unchanged, in any policy."""
        return cls(False, None, copied)

    def hasher(self) -> Hasher:
        """Return the hasher that the object's bytes have to pass through."""
        return Hasher(md5=self.uses_md5)

    def made(self, hasher: Hasher) -> str:
        """Return the ETag, once all bytes have passed; 422 when it differs from that of the client or the source."""
        known = None if self.copied is None else self.copied.xxh3
        if known is not None and hasher.xxh3_64() != known:
            raise ApiError(422, "the bytes read from the source of the copy do not match its checksum; try again")
        etag = self._computed(hasher)
        if self.given is not None and _plain(self.given) != etag:
            what = "MD5" if self.uses_md5 else "ETag"
            raise ApiError(422, f"the {what} of the body is {etag}, but the ETag header is {self.given.strip()[:64]!r}")
        return etag

    def _computed(self, hasher: Hasher) -> str:
        if self.uses_md5:
            return hasher.md5_hexdigest()
        if self.copied is not None and self.given is None:
            # The bytes are the same, so the copy has the same ETag, even where that is MD5.
            return self.copied.etag
        return PREFIX + hasher.xxh3_128_hexdigest()


def _plain(given: str) -> str:
    return given.strip().strip('"').lower()
