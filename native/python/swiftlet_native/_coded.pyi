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
_ReadWaits: TypeAlias = tuple[float, int, int, bool]
"""Seconds of each request, how many of the first places may stand in for those that are late, bytes that may wait to be
taken, and whether small objects of the policy are copies."""
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
class CodedSmallWriting:
    """A small object on its way to the devices that have its copies; it goes on when nobody refers to it any more."""

    def turn(self) -> float | None:
        """The seconds after which to call again; None after `close`."""

    def ended(self) -> tuple[str, int | None, int, list[_Pending], list[_Refused]] | None:
        """None while it goes on. Else: "acknowledged", "failed", or "unknown" when it may turn out to have happened;
        the timestamp of the newest version or deletion that a device has instead; how many copies there are, or
        something newer in their place; which rows are pending; who refused."""

    def close(self) -> None:
        """Wait for nothing any more. All answers are None after it."""

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

_Post: TypeAlias = tuple[int, int, _Pairs, bytes | None, int]
"""Metadata: their timestamp, when the object expires in seconds since the epoch or 0, all of them, the content type if
they set it, and its timestamp."""

@final
class CodedPosting:
    """Metadata on their way to the devices of an object's places; they go on when nobody refers to it any more."""

    def turn(self) -> float | None:
        """The seconds after which to call again; None after `close`."""

    def ended(self) -> tuple[str, int | None, _Info | None, list[_Pending], list[_Refused]] | None:
        """None while it goes on. Else: "acknowledged", "superseded", "deleted", or "unknown" when they may count; the
        timestamp of what is newer, or of the deletion; the object since, if a device has told it; which rows are
        pending; who refused."""

    def close(self) -> None:
        """Wait for nothing any more. All answers are None after it."""

@final
class CodedReading:
    """A range of an object on its way; stopped when nobody refers to it any more."""

    def take(self) -> bytes | None:
        """The next bytes, checked, several cells joined up to 1 MiB; more may be asked for.

        None when there are none yet: a "sent" event tells of the next ones.
        """

    def copy(self) -> None:
        """Copy waiting bytes out of the transport's memory, as the reader may not come for a while."""

    def turn(self) -> float | None:
        """Ask others for what is late. The seconds after which to call again; None after `close`."""

    def info(self) -> _Info | None:
        """What the object is, once it is known, with 0 for the xxh3 of its bytes: fragments have others."""

    def is_small(self) -> bool:
        """Whether the object is a small one, which lies as copies; once it is known what it is."""

    def hedges(self) -> int:
        """How often others were asked in the place of a device that was late. 0 after `close`."""

    def ended(self) -> tuple[str, int | None, list[_Refused]] | None:
        """None while it goes on. Else: "whole"; "not-found"; "unavailable" when the object can't be put together, or it
        can't be told which version is the newest, and nothing of it has come; "cut" when the rest can't be. With
        "not-found" the timestamp of the deletion, if one is known. Then who gave no good answer."""

    def close(self) -> None:
        """Ask for nothing more, and drop what has come. All answers are None after it."""

_Message: TypeAlias = tuple[int, bytes]
_CodedVersion: TypeAlias = tuple[int, int]
"""Timestamp and generation."""
_Chosen: TypeAlias = list[tuple[int, int]]
"""The devices that a proxy chose: id in the ring, incarnation."""
_Lack: TypeAlias = tuple[int, _CodedVersion, bytes]
"""The number of a place, the version of which it lacks the fragment, and how far away each device of the ring is from
who rebuilds it, by its id: from 2 on it is behind a link that is to be spared. None is far behind the end."""
_Write: TypeAlias = tuple[_CodedVersion, _Chosen]
"""A version, and the devices that decide about it."""

@final
class CodedRebuilding:
    """A fragment that is being made for the device of its place; nothing is kept when nobody refers to it any more
    before its end."""

    def ended(self) -> tuple[str, int, list[_Refused]] | None:
        """None while it goes on. Else what the device has said (as `CodedWire.said`), "too-few" when fewer than k
        fragments can be read, "unproved" when what was made is not the fragment that others know, or "failed" when the
        device could not be reached; then the bytes that were made, and who gave no good answer."""

    def made(self) -> int:
        """The bytes of the fragment that were made by now; 0 after `close`."""

    def read(self) -> list[tuple[int, int]]:
        """Devices by their ids, each with the bytes of cells that came from it by now; empty after `close`."""

    def close(self) -> None:
        """Ask for nothing more. All answers are None after it."""

@final
class CodedPacking:
    """A packer of the small objects of one partition.

    `places` are those of any object of it. The waits are seconds: of each request, of a pack's body and of the proof
    of a fragment, and for which a fragment may take to be settled. The terms: how many places have small objects, the
    timestamp before which copies are packed, the least and the most bytes of a pack, and the share of a pack below
    which what is referred to of it is put into a new one. `passed_by` are digests of packs that are left alone, and
    copies that are left out without being read.
    """

    def __new__(
        cls,
        places: _Places,
        waits: tuple[float, float, float],
        terms: tuple[int, int, int, int, float],
        passed_by: tuple[set[bytes], set[tuple[bytes, int]]],
        trace: str,
        /,
    ) -> CodedPacking: ...
    def round(
        self, drawn: int, version: tuple[int, int], /
    ) -> tuple[
        tuple[
            int,
            int,
            int,
            int,
            list[tuple[bytes, tuple[int, int]]],
            tuple[bool, list[bytes]],
            list[tuple[bytes, int]],
            tuple[int, int],
            tuple[int, int, int, int],
        ],
        tuple[str, str] | None,
    ]:
        """Finish or retire what others have left, then pack what is cold; blocks until it is over. `drawn` are 64
        random bits that begin with the partition's, `version` the timestamp and generation of a new pack. Returns the
        members of the new pack and their bytes; how many packs of others are adopted now, and are retired now; which
        retired ones may be deleted; whether all packs were looked at, and which of them not all places could adopt as a
        whole; which copies were left out as places have them with other bytes; how many packs were written anew, and
        their bytes; and of the packs that were there how many somebody refers to, their bytes, how many of these count,
        and how many packs below the live share are left. Then None, or "ended", "refused" or
        "failed" and why: what is left is for a later round."""

    def delete(self, digest: bytes, version: tuple[int, int], timestamp: int, /) -> tuple[str, str] | None:
        """Delete a pack that may be deleted, as of this timestamp; blocks until it is over. Returns why not all places
        have done it, as `round` does."""

    def end(self) -> None:
        """Send no further message: a round that is under way is over soon."""

@final
class PackWire:
    """The messages by which places bring each other references to packs; as those of `CodedWire`. `body` is that of an
    answer with references."""

    @staticmethod
    def references(device: str, place: _Place, digests: list[bytes], /) -> _Message: ...
    @staticmethod
    def referred(body: Buffer, /) -> list[bytes]:
        """The objects that are in packs there, of those that were asked for and that an answer has room for."""

    @staticmethod
    def learn(device: str, place: _Place, body: Buffer, digests: list[bytes], /) -> list[tuple[_Message, list[bytes]]]:
        """For each pack a message to the device of a place, and the objects that it is about, of these."""

    @staticmethod
    def is_taken(header: Buffer, /) -> bool:
        """Whether the place has them now, or knew better. Else its fragment of the pack is missing, or retired."""

    @staticmethod
    def posts(device: str, place: _Place, body: Buffer, digests: list[bytes], /) -> list[tuple[_Message, list[bytes]]]:
        """What was posted to these objects: a message for each one to which something was."""

@final
class CodedRecovering:
    """An attempt to have devices decide about a write; it ends where it is when nobody refers to it any more."""

    def ended(self) -> tuple[str, int, list[_Refused]] | None:
        """None while it goes on. Else "committed", "aborted", "superseded" when something newer is settled, or "later"
        with the highest round that was heard of: the next attempt takes a higher one. Then who gave no good answer."""

    def close(self) -> None:
        """Ask nobody any more. All answers are None after it."""

@final
class CodedWire:
    """The messages by which fragments are compared and repaired. A device has the name that it has at its server; a
    message is a method's number and a header. ValueError for values that can't be, and for answers that are none."""

    @staticmethod
    def show(device: str, place: _Place, /) -> _Message: ...
    @staticmethod
    def shown(header: Buffer, /) -> tuple[_CodedVersion, bool] | None:
        """The version that is shown, and whether older ones are dead; None where nothing is."""

    @staticmethod
    def learn(device: str, place: _Place, shown: Buffer, /) -> _Message:
        """`shown` is the answer of another place to `show`."""

    @staticmethod
    def hand_back(device: str, place: _Place, shown: Buffer, /) -> _Message:
        """`shown` is the answer of the device at the fragment's place to `show`."""

    @staticmethod
    def settle(device: str, place: _Place, version: _CodedVersion, /) -> _Message: ...
    @staticmethod
    def newest(device: str, place: _Place, /) -> _Message:
        """The question for the newest metadata."""

    @staticmethod
    def has_post(newest: Buffer, /) -> bool:
        """Whether the answer to `newest` has metadata that were posted."""

    @staticmethod
    def post(device: str, place: _Place, newest: Buffer, /) -> _Message:
        """`newest` is the answer of another place, with metadata."""

    @staticmethod
    def said(header: Buffer, /) -> str:
        """The answer to `learn`, `hand_back` and `settle`: "done", "missing", "superseded", "outbid", "committed",
        "aborted", "busy" or "other"."""

    @staticmethod
    def unsettled(device: str, policy: int, after: tuple[int, bytes] | None, /) -> _Message:
        """Only fragments behind a partition and digest."""

    @staticmethod
    def unsettled_list(header: Buffer, /) -> tuple[list[tuple[_Place, _CodedVersion, _Chosen, bool]], bool]:
        """Versions: the fragment, the version, the devices that were chosen, whether it is certain; and whether others
        follow."""

    @staticmethod
    def is_settled(data: int, parity: int, equal: int, /) -> bool:
        """Whether older versions are dead when so many other places show this one in one round under one ring."""
