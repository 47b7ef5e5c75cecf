"""Bodies of the native transport that are wrong on their way to a client, in frames that are right: what a peer sends
whose memory is not what it was.

Frames are those of `docs/transport.md`. Their heads have checks of their own, which bodies are not a part of.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEAD_BYTES = 28
_KIND, _LENGTHS = 8, slice(12, 20)
"""Where in a head the kind of its frame is, and the bytes of its meta part and of its body."""
_REPLY, _DATA = 6, 9


@dataclass
class Spoiling:
    """Turns a bit of the first byte of bodies that peers send."""

    left: int = 0
    """So many of the next bodies are spoiled."""

    def begin(self) -> Spoiled:
        """Return what is to be done with the bytes of one connection, from its first one on."""
        return Spoiled(self)


class Spoiled:
    """The frames of one connection."""

    def __init__(self, spoiling: Spoiling) -> None:
        """Spoil bodies when `spoiling` says so."""
        self._spoiling = spoiling
        self._head = bytearray()
        self._meta = self._body = 0
        """Bytes that are left of these parts of the frame."""
        self._begins = False
        """Whether the next byte of the body is its first one, and the frame is of a kind that may be spoiled."""

    def __call__(self, data: bytes) -> bytes:
        """Return what is passed on of the next bytes: as many."""
        found, at = bytearray(data), 0
        while at < len(found):
            left = len(found) - at
            if self._meta:
                step = min(self._meta, left)
                self._meta -= step
            elif self._body:
                step = min(self._body, left)
                self._body -= step
                if self._begins and self._spoiling.left:
                    found[at] ^= 1
                    self._spoiling.left -= 1
                self._begins = False
            else:
                step = min(_HEAD_BYTES - len(self._head), left)
                self._begin(bytes(found[at : at + step]))
            at += step
        return bytes(found)

    def _begin(self, piece: bytes) -> None:
        """The next bytes of a head."""
        self._head += piece
        if len(self._head) == _HEAD_BYTES:
            self._meta, self._body = struct.unpack(">II", self._head[_LENGTHS])
            self._begins = self._head[_KIND] in {_REPLY, _DATA}
            self._head.clear()
