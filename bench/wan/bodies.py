"""What objects of the study are made of."""

from __future__ import annotations

import random
from collections.abc import Iterator

_BLOCK = random.Random(7).randbytes(4 << 20)
"""What bodies are made of: random, as nothing may gain by compressing it, and the same in each client."""
_CHUNK = 256 << 10


def body(seed: int, size: int) -> Iterator[memoryview]:
    """Return the bytes of an object in pieces; objects of other seeds are different."""
    begin, at, view = seed * 4099 % len(_BLOCK), 0, memoryview(_BLOCK)
    while at < size:
        start = (begin + at) % len(_BLOCK)
        piece = view[start : start + min(_CHUNK, size - at, len(_BLOCK) - start)]
        at += len(piece)
        yield piece
