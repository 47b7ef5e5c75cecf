"""The part of the treaty about objects with erasure coding; `swiftlet_native` has all of its names."""

from typing import TypeAlias, final

from typing_extensions import Buffer

from swiftlet_native import TransportPeer

_Place: TypeAlias = tuple[int, int, bytes]
_Pairs: TypeAlias = list[tuple[bytes, bytes]]
_Info: TypeAlias = tuple[bytes, int, int, bytes, int, bytes, _Pairs, _Pairs, int, int]

@final
class CodedDevices:
    """The devices of a ring by their ids, and what they have said of themselves; kept while they are the same.

    Each is the peer of its server and its name there; None where there is no device, or its server is not known.
    """

    def __new__(cls, targets: list[tuple[TransportPeer, str] | None], /) -> CodedDevices: ...

_Places: TypeAlias = tuple[CodedDevices, _Place, tuple[int, int, int], list[int], list[int]]
"""An object with erasure coding: its ring's devices, its place in the ring, the numbers of data and parity fragments
and the bytes of a cell; by their ids the devices of its places, and those that stand in for others."""
_WriteWaits: TypeAlias = tuple[float, float, float, float]
"""Seconds: of each request, and of all devices to have it durable after the body's end; of the whole body; until a
spare is asked for a device that does not say that it is there; for which one may hold up the others."""
_ReadWaits: TypeAlias = tuple[float, float, int]
"""Seconds of each request, seconds after which another device is asked as well, bytes that may wait to be taken."""
_DeleteWaits: TypeAlias = tuple[float, float]
"""Seconds: of each request, and for which the other devices are waited for once a deletion counts."""
_Pending: TypeAlias = tuple[int, int]
"""The number of a place, and the id of the device that keeps a row for it."""
_Refused: TypeAlias = tuple[int, tuple[str, str] | None, tuple[int, bytes] | None]
"""The id of a device that gave no good answer: a failure's kind and text, or a refusal's status and header."""

@final
class CodedWriting:
    """An object on its way to the devices of its places; cancelled, unless its body has ended, when nobody refers to it
    any more."""

    def turn(self) -> float | None:
        """0 if there is room for more bytes or the end. Else the seconds after which to ask again; a "sent" event tells
        of room before that. None when the write is over."""

    def push(self, data: Buffer, /) -> bool:
        """Give up to 1 MiB, which are coded in this call. False, and nothing is taken, when there is no room."""

    def finish(self, etag: Buffer, /) -> bool:
        """The body is complete: devices make it durable. False when there is no room yet."""

    def ended(self) -> tuple[str, int | None, int, int, bool, list[_Refused]] | None:
        """None while it goes on. Else: "acknowledged", "failed", or "unknown" when it may turn out to have happened;
        the timestamp of the newest version that a device has settled instead; how many devices have it or something
        newer; the object's size; whether it has more cells than it may have; who refused."""

    def pending(self) -> list[_Pending]:
        """The rows that devices have pending by now; more of them come after the write's end."""

    def close(self) -> None:
        """Wait for nothing any more; nothing remains of it unless its body has ended. All answers are None after it."""

@final
class CodedDeleting:
    """A deletion on its way to the devices of an object's places; it goes on when nobody refers to it any more."""

    def turn(self) -> float | None:
        """The seconds after which to call again; None after `close`."""

    def ended(self) -> tuple[str, bool, int | None, list[_Pending], list[_Refused]] | None:
        """None while it goes on. Else: "acknowledged", "superseded", or "unknown" when it may have happened; whether
        there was an object; the timestamp of one that is newer; which rows are pending; who refused."""

    def close(self) -> None:
        """Wait for nothing any more. All answers are None after it."""

@final
class CodedReading:
    """A range of an object on its way; stopped when nobody refers to it any more."""

    def take(self) -> bytes | None:
        """The next bytes, checked, a chunk or several small ones; more may be asked for.

        None when there are none yet: a "sent" event tells of the next ones.
        """

    def turn(self) -> float | None:
        """Ask others for what is late. The seconds after which to call again; None after `close`."""

    def info(self) -> _Info | None:
        """What the object is, once it is known, with 0 for the xxh3 of its bytes: fragments have others."""

    def ended(self) -> tuple[str, int | None, list[_Refused]] | None:
        """None while it goes on. Else: "whole"; "not-found"; "unavailable" when the object can't be put together, or it
        can't be told which version is the newest, and nothing of it has come; "cut" when the rest can't be. With
        "not-found" the timestamp of the deletion, if one is known. Then who gave no good answer."""

    def close(self) -> None:
        """Ask for nothing more, and drop what has come. All answers are None after it."""
