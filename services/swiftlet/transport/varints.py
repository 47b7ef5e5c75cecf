"""Numbers that take few bytes, and a cursor for messages that consist of them.

A varint has seven bits per byte, lowest first, with the highest bit set in all bytes but the last.

Fault model: a message may be anything; one that ends early or has a value that is not allowed raises `WireError`.
"""

from __future__ import annotations

from swiftlet.transport.wire import WireError


def put_varint(out: bytearray, value: int) -> None:
    """Append a number, which must not be negative."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class Cursor:
    """Reads a message from front to back; `what` names it in errors."""

    def __init__(self, data: bytes, what: str, at: int = 0) -> None:
        """`at` is the position at which reading begins."""
        self._data = data
        self._at = at
        self._what = what

    @property
    def done(self) -> bool:
        """Whether the whole message was read."""
        return self._at == len(self._data)

    @property
    def at(self) -> int:
        """The number of bytes read so far."""
        return self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises WireError if there are fewer."""
        end = self._at + size
        if end > len(self._data):
            raise WireError(f"{self._what} ends early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def flags(self, known: int) -> int:
        """Return the next byte, in which only these bits may be set. Raises WireError."""
        value = self.take(1)[0]
        if value & ~known:
            raise WireError(f"unknown flags {value:#x} in {self._what}")
        return value

    def varint(self, limit: int) -> int:
        """Return the next number, up to `limit`. Raises WireError."""
        at = self._at
        if at < len(self._data) and (value := self._data[at]) < 0x80 and value <= limit:
            # Nearly all numbers take this short path, and there are many of them.
            self._at = at + 1
            return value
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value > limit or shift > 70:
                raise WireError(f"a number in {self._what} is over {limit}")
            if byte < 0x80:
                return value

    def bytes(self, limit: int) -> bytes:
        """Return bytes that are preceded by their number, up to `limit`."""
        return self.take(self.varint(limit))
