"""Reads multipart/form-data as it arrives (RFC 7578): one part at a time, holding only what may begin a delimiter.

Fault model: a body may end anywhere, have endless headers, an invalid boundary, or parts without names. A part that was
cut off is an error, never a shorter part. The headers of a part are bounded; the number of parts and their data are
not: the caller sets those limits, by `taken` and a count of its own. The work is linear in the received bytes, however
they are cut into pieces.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

MAX_BOUNDARY = 200
"""The largest length of a boundary in characters; RFC 2046 allows 70."""
MAX_PART_HEADERS = 8192
"""The largest size in bytes of all headers of one part."""
_MAX_PARAMETERS = 20
"""The largest number of parameters of a header that count; browsers send two."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f]")
_MAX_PADDING = 256
"""The largest number of bytes of white space after a delimiter, or of empty lines before the first."""


class BadForm(Exception):
    """The body is not a multipart document; the message says why."""


@dataclass(frozen=True, slots=True)
class Part:
    """The head of a part."""

    headers: Mapping[str, str]
    """Headers by name in lower case."""
    disposition: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The parameters of Content-Disposition: `name`, `filename`."""


class Multipart:
    """A document that is read part by part."""

    def __init__(self, pieces: AsyncIterator[bytes], boundary: str) -> None:
        """Read `pieces` as they arrive. Raises BadForm for an invalid boundary."""
        if not 0 < len(boundary) <= MAX_BOUNDARY or not boundary.isascii() or not boundary.isprintable():
            raise BadForm("invalid boundary")
        self._pieces = pieces
        self._delimiter = b"\r\n--" + boundary.encode()
        # With this the first delimiter, which may be at the very beginning, looks like the others.
        self._buffer = bytearray(b"\r\n")
        self._came = len(self._buffer)
        self._ended = False
        self._in_part = False
        self._begun = False

    @property
    def taken(self) -> int:
        """Return how many bytes of the document have been parsed so far."""
        return self._came - len(self._buffer)

    async def next_part(self) -> Part | None:
        """Return the next part's head; None after the last. The rest of the part before is skipped."""
        if not self._begun:
            await self._begin()
        while self._in_part:
            await self.read()
        if await self._is_last():
            return None
        part = _parse_head(await self._head())
        self._in_part = True
        return part

    async def read(self) -> bytes:
        """Return more bytes of the part; none at its end."""
        while self._in_part:
            found = self._buffer.find(self._delimiter)
            if found >= 0:
                self._in_part = False
                return self._take(found, len(self._delimiter))
            safe = len(self._buffer) - len(self._delimiter) + 1
            if safe > 0:
                return self._take(safe)
            if not await self._more():
                raise BadForm("the form ends in the middle of a part, before its closing boundary")
        return b""

    def _take(self, size: int, behind: int = 0) -> bytes:
        """Return the buffer's first `size` bytes and drop the `behind` bytes after them, without moving the rest."""
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[: size + behind]
        return data

    async def _more(self) -> bool:
        if not self._ended:
            piece = await anext(self._pieces, b"")
            self._ended = not piece
            self._came += len(piece)
            self._buffer += piece
        return not self._ended

    async def _begin(self) -> None:
        self._begun = True
        enough, start = _MAX_PADDING + len(self._delimiter), self._delimiter[2:]
        while True:
            text = self._buffer[: enough + 1].lstrip(b"\r\n")
            if len(text) >= len(start) or len(self._buffer) > enough:
                break
            if not await self._more():
                break
        padding = min(len(self._buffer), enough + 1) - len(text)
        if not text.startswith(start) or padding > _MAX_PADDING:
            raise BadForm("invalid starting boundary")
        del self._buffer[: padding + len(start)]

    async def _is_last(self) -> bool:
        """Return whether a delimiter is the last: `--` ends the document, a line end begins a part."""
        while len(self._buffer) < 2 and await self._more():
            pass
        if self._buffer.startswith(b"--"):
            return True
        while (end := self._buffer.find(b"\r\n", 0, _MAX_PADDING + 2)) < 0:
            if len(self._buffer) > _MAX_PADDING or not await self._more():
                raise BadForm("a boundary must be followed by a line end, or by -- at the end of the form")
        if self._buffer[:end].strip(b" \t"):
            raise BadForm("a boundary must be followed by a line end, or by -- at the end of the form")
        del self._buffer[:end]
        return False

    async def _head(self) -> bytes:
        """Return the header lines; the buffer begins with the line end before them, so that there may be none."""
        while (end := self._buffer.find(b"\r\n\r\n", 0, MAX_PART_HEADERS + 4)) < 0:
            if len(self._buffer) > MAX_PART_HEADERS:
                raise BadForm(f"the headers of a part are longer than {MAX_PART_HEADERS} bytes")
            if not await self._more():
                raise BadForm("the form ends in the headers of a part")
        return self._take(end, 4)


def _parse_head(head: bytes) -> Part:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        raise BadForm("the headers of a part are not valid UTF-8") from error
    headers: dict[str, str] = {}
    for line in filter(None, text.split("\r\n")):
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or _CONTROL.search(line):
            raise BadForm("a part has a malformed header")
        headers.setdefault(name.strip().lower(), value.strip())
    disposition, parameters = parse_parameters(headers.get("content-disposition", ""))
    return Part(headers, disposition, parameters)


def parse_parameters(header: str) -> tuple[str, dict[str, str]]:
    """Parse `form-data; name="a"; filename="b"` in one pass; of a repeated parameter the first counts.

    In quotes a backslash is an ordinary character, as browsers send it, except before a quote, as other programs do.
    """
    value, _, rest = header.partition(";")
    parameters: dict[str, str] = {}
    position = 0
    for _ in range(_MAX_PARAMETERS):
        equals = rest.find("=", position)
        if equals < 0:
            break
        name = rest[position:equals].strip(" \t;").lower()
        if rest[equals + 1 : equals + 2] == '"':
            text, position = _quoted(rest, equals + 2)
        else:
            end = rest.find(";", equals)
            position = len(rest) if end < 0 else end + 1
            text = rest[equals + 1 : position].strip(" \t;")
        parameters.setdefault(name, text)
    return value.strip().lower(), parameters


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return the text up to the closing quote, and the position after it."""
    pieces = []
    position = start
    while (end := text.find('"', position)) > 0 and text[end - 1] == "\\" and end > position:
        pieces.append(text[position : end - 1] + '"')
        position = end + 1
    pieces.append(text[position : end if end >= 0 else len(text)])
    return "".join(pieces), end + 1 if end >= 0 else len(text)
