"""The treaty between Python and Rust: everything that crosses the border, and nothing else.

Rules that hold for all of it:

- Bytes are taken from any C-contiguous buffer (bytes, bytearray, memoryview, mmap, ...) and read
  where they are, without a copy. Anything else is a TypeError.
- While a large buffer is worked on, other Python threads run. A mutable buffer should not be written
  to meanwhile; a bytearray cannot be resized meanwhile (BufferError).
- Every object may be used from several threads at once.
"""

from typing import Final, final

from typing_extensions import Buffer

__all__ = ["Hasher", "__version__", "md5", "xxh3_64", "xxh3_128"]

__version__: Final[str]

def md5(data: Buffer, /) -> bytes:
    """MD5 of a buffer: 16 bytes."""

def xxh3_64(data: Buffer, /) -> int:
    """xxh3 of a buffer in 64 bits, seed 0."""

def xxh3_128(data: Buffer, /) -> bytes:
    """xxh3 of a buffer in 128 bits, seed 0: 16 bytes, big-endian, which is its canonical form."""

@final
class Hasher:
    """MD5 and xxh3 of a stream, in one pass over it.

    A digest may be read at any time and does not end the stream. To ask for a digest that the flags
    left out is a ValueError.
    """

    def __new__(cls, *, md5: bool = True, xxh3: bool = True) -> Hasher: ...
    def update(self, data: Buffer, /) -> None:
        """Take in the next bytes of the stream."""

    @property
    def size(self) -> int:
        """How many bytes have been taken in."""

    def md5_digest(self) -> bytes:
        """MD5 of the bytes so far: 16 bytes."""

    def md5_hexdigest(self) -> str:
        """MD5 of the bytes so far in lower-case hexadecimal digits, as in an ETag."""

    def xxh3_64(self) -> int:
        """xxh3 of the bytes so far in 64 bits."""

    def xxh3_128(self) -> bytes:
        """xxh3 of the bytes so far in 128 bits: 16 bytes, big-endian."""

    def copy(self) -> Hasher:
        """A hasher that has seen the same bytes and goes its own way from here."""
