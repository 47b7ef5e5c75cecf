"""The treaty between Python and Rust: everything that crosses the border, and nothing else.

Rules that hold for all of it:

- Bytes are taken from any C-contiguous buffer (bytes, bytearray, memoryview, mmap, ...) and read
  where they are, without a copy. Anything else is a TypeError.
- While a large buffer is worked on, other Python threads run. A mutable buffer should not be written
  to meanwhile; a bytearray cannot be resized meanwhile (BufferError).
- Every object may be used from several threads at once.
"""

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final, TypeAlias, final

from typing_extensions import Buffer

from swiftlet_native._coded import CodedDeleting as CodedDeleting
from swiftlet_native._coded import CodedDevices as CodedDevices
from swiftlet_native._coded import CodedPacking as CodedPacking
from swiftlet_native._coded import CodedPosting as CodedPosting
from swiftlet_native._coded import CodedReading as CodedReading
from swiftlet_native._coded import CodedRebuilding as CodedRebuilding
from swiftlet_native._coded import CodedRecovering as CodedRecovering
from swiftlet_native._coded import CodedSmallWriting as CodedSmallWriting
from swiftlet_native._coded import CodedWire as CodedWire
from swiftlet_native._coded import CodedWriting as CodedWriting
from swiftlet_native._coded import PackWire as PackWire
from swiftlet_native._coded import _DeleteWaits, _Lack, _Places, _Post, _ReadWaits, _Write, _WriteWaits
from swiftlet_native._doubts import Doubts as Doubts
from swiftlet_native._front import Changes as Changes
from swiftlet_native._front import Front as Front
from swiftlet_native._guests import cluster_key_id as cluster_key_id
from swiftlet_native._guests import guest_answer as guest_answer
from swiftlet_native._guests import guest_header as guest_header
from swiftlet_native._guests import guest_session as guest_session
from swiftlet_native._guests import read_guest_session as read_guest_session
from swiftlet_native._guests import sign_grant as sign_grant
from swiftlet_native._load import Load as Load
from swiftlet_native._pairs import PairRoots as PairRoots
from swiftlet_native._updates import ContainerServer as ContainerServer
from swiftlet_native._updates import UpdateTable as UpdateTable

__all__ = [
    "ContainerServer",
    "Hasher",
    "ObjectServer",
    "ObjectWire",
    "PairRoots",
    "Store",
    "StoreError",
    "StoreReader",
    "StoreWriter",
    "TransportBuffer",
    "TransportChunk",
    "TransportDigester",
    "TransportNode",
    "TransportPeer",
    "TransportRun",
    "TransportTicket",
    "TransportUpload",
    "TransportWindow",
    "UpdateTable",
    "__version__",
    "cluster_certificates",
    "md5",
    "rdma_version",
    "read_copies",
    "sync_answer",
    "sync_ascending",
    "sync_branches",
    "sync_copies",
    "sync_differing",
    "sync_differing_branches",
    "sync_differing_many",
    "sync_entries",
    "sync_fits",
    "sync_in_order",
    "sync_lacked",
    "sync_listing_heads",
    "sync_listings",
    "sync_members",
    "sync_newer",
    "sync_shared",
    "sync_suffix_heads",
    "sync_suffixes",
    "take_copies",
    "xxh3_64",
    "xxh3_128",
]

__version__: Final[str]

def md5(data: Buffer, /) -> bytes:
    """MD5 of a buffer: 16 bytes."""

def md5_of_each(all: Sequence[Buffer], /) -> list[bytes]:
    """MD5 of each buffer, computed side by side, which is quicker than one after the other."""

def xxh3_64(data: Buffer, /) -> int:
    """xxh3 of a buffer in 64 bits, seed 0."""

def cluster_certificates(keys: list[bytes], /) -> tuple[list[str], str, str]:
    """The authorities that the cluster's keys stand for, a new certificate issued by the first one, and its private
    key, all in PEM.

    OSError without a key, or without randomness.
    """

def rdma_version() -> str | None:
    """The version of UCX, by which RDMA goes; None: this build has no RDMA."""

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

    @staticmethod
    def update_each(pieces: Sequence[tuple[Hasher, Buffer]], /) -> None:
        """Take in the next bytes of each of several streams.

        MD5 is computed side by side, which is quicker than one after the other. Other Python threads
        run meanwhile. A Hasher that is named twice is a ValueError."""

    @property
    def size(self) -> int:
        """How many bytes have been taken in."""

    def md5_digest(self) -> bytes:
        """MD5 of the bytes so far: 16 bytes."""

    def md5_hexdigest(self) -> str:
        """MD5 of the bytes so far in lower-case hexadecimal digits, as in an ETag."""

    def xxh3_64(self) -> int:
        """xxh3 of the bytes so far in 64 bits."""

    def xxh3_128_hexdigest(self) -> str:
        """xxh3 of the bytes so far in 128 bits, in lower-case hexadecimal digits."""

    def copy(self) -> Hasher:
        """A hasher that has seen the same bytes and goes its own way from here."""

_Place: TypeAlias = tuple[int, int, bytes]
"""Storage policy, partition, 16-byte digest."""
_Pairs: TypeAlias = list[tuple[bytes, bytes]]
"""Names and values; texts cross the border as bytes, since names need not be valid Unicode."""
_Info: TypeAlias = tuple[bytes, int, int, bytes, int, bytes, _Pairs, _Pairs, int, int]
"""name, timestamp, size, etag, xxh3, content type, metadata, sysmeta, timestamps of metadata and content type."""
_Entry: TypeAlias = tuple[bytes, int, int, int, int]
"""digest, kind (1 data, 2 tombstone), timestamps of version, metadata and content type (0: none)."""

class StoreError(Exception):
    """A store's refusal; `args` are the name of the class in `swiftlet.errors`, a sentence, a timestamp or None."""

@final
class StoreWriter:
    """A new version on its way in; dropped, it leaves nothing."""

    def write(self, data: Buffer, /) -> None:
        """Append bytes; an error ends the writer."""

    def commit(
        self,
        name: bytes,
        timestamp: int,
        content_type: bytes,
        metadata: _Pairs,
        sysmeta: _Pairs,
        delete_at: int,
        size: int,
        etag: bytes,
        xxh3: int,
        /,
    ) -> bool:
        """Make the version durable and visible; False when the same version was here.

        `delete_at` in seconds since 1970, 0 never.
        """

    def abort(self) -> None:
        """Drop everything written; harmless after `commit` or a second time."""

@final
class StoreReader:
    """One version of an object, readable until closed."""

    def info(self) -> _Info:
        """The merged object."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Checked bytes from `offset` on, shorter only at the end."""

    def close(self) -> None:
        """Let go of the version."""

@final
class Store:
    """All objects of all storage policies on one device; see `docs/volumes.md`. Raises StoreError.

    The device's directory belongs to this process until `close`. Blocking calls let other Python threads run.
    """

    def __new__(
        cls,
        root: str | PathLike[str],
        *,
        reserve_bytes: int = 0,
        volume_bytes: int = 1073741824,
        aggregate_below: int = 1048576,
        live_share: float = 0.5,
        checkpoint_bytes: int = 268435456,
        compact_bytes_per_s: int = 0,
        audit_bytes_per_s: int = 0,
        threads: bool = True,
    ) -> Store:
        """Without `threads` nothing is done but what is called; `close` then writes no checkpoint. Rates: 0 is none."""

    @staticmethod
    def rebuild(root: str | PathLike[str], /) -> Store:
        """Own a device, its index made anew from the volumes and written; without threads."""

    def set_aggregate_below(self, limits: Sequence[tuple[int, int]], /) -> None:
        """From now on objects of these policies lie in volumes up to these sizes (4 MiB at most), others up to the
        store's. What is stored already stays where it is.
        """

    def create(self, place: _Place, size: int | None, aggregate_below: int | None, /) -> StoreWriter:
        """Begin a new version; up to `aggregate_below` bytes (None: the policy's) it goes into a volume."""

    def open(self, place: _Place, /) -> StoreReader:
        """The newest version for reading."""

    def stat(self, place: _Place, /) -> _Info:
        """The newest version's description."""

    def post(
        self,
        place: _Place,
        timestamp: int,
        metadata: _Pairs,
        content_type: bytes | None,
        content_type_timestamp: int,
        delete_at: int,
        /,
    ) -> bool:
        """Merge POSTed metadata; False when nothing changed."""

    def delete(self, place: _Place, timestamp: int, name: bytes, /) -> bool:
        """Store a tombstone."""

    def remove(self, place: _Place, entry: _Entry, /) -> bool:
        """Forget a copy without a tombstone, unless it changed; whether it went."""

    def partitions(self) -> list[tuple[int, int]]:
        """Policies and partitions with anything in them, in order."""

    def kept_as(self, policy: int, /) -> list[tuple[int, int, int] | None]:
        """How a policy's objects are kept, if there are any: None if whole, else data, parity and bytes of a cell."""

    def suffix_hashes(self, policy: int, partition: int, /) -> list[tuple[int, bytes]]:
        """Suffixes with anything in them, as numbers, with their 16-byte set hashes."""

    def root(self, policy: int, partition: int, /) -> bytes | None:
        """One hash over a partition: 16 bytes; None when nothing is in it."""

    def entries(self, policy: int, partition: int, suffix: int, /) -> list[_Entry]:
        """What is held in a suffix, by digest."""

    def digests(self, policy: int, partition: int, /) -> list[bytes]:
        """Digests of everything in a partition, by suffix."""

    def verify(self, place: _Place, /) -> None:
        """Read a version and check it; ChecksumMismatch after it was moved to quarantine."""

    def reclaim(self, before: int, /) -> int:
        """Forget tombstones older than a timestamp; how many went."""

    def expired(self, now_s: int, /) -> list[tuple[_Place, int]]:
        """Objects whose `delete_at` is not after `now_s`, with the timestamps of their data."""

    def usage(self) -> tuple[int, int, int, bool]:
        """Bytes in total and free, objects and tombstones, and whether bodies are written past the page cache."""

    def counters(self) -> list[tuple[str, int]]:
        """What was counted since it was opened: batches, quarantined, checkpoints, compacted (volumes), copied_bytes,
        punched_bytes, audited_bytes, audits (times through everything)."""

    def recovery(self) -> list[tuple[str, int]]:
        """What the start found: checkpoint (1 if one was used), records and bytes read behind it, damaged records,
        orphans (large files of nobody), dangling (slots that pointed nowhere)."""

    def volumes(self) -> list[tuple[int, bool, bool, int, int]]:
        """Number, whether it is compaction's, whether it is sealed, bytes in use, bytes held, of each volume."""

    def checkpoint(self) -> None:
        """Write a checkpoint of the index, so that the next start is quick."""

    def compact(self) -> bool:
        """Rewrite the volume that is worth it most; whether one was."""

    def audit(self, size: int, /) -> list[_Place]:
        """Check about so many bytes from where the last call ended; what was found damaged and set aside."""

    def check(self) -> list[str]:
        """Compare index, set hashes and volumes; each difference as a sentence. Nothing may be written meanwhile."""

    def pending_updates(self, limit: int, age_s: float, /) -> list[tuple[_Place, int, int]]:
        """Up to `limit` updates pending for `age_s`, oldest first: place, newest timestamp, replicas as bits."""

    def pending_count(self) -> tuple[int, float]:
        """Return the number of pending updates, and for how many seconds the oldest of them is pending (0.0: none)."""

    def acknowledge(self, versions: list[tuple[_Place, int]], /) -> None:
        """Keep the updates of these versions no longer; that of a newer version stays pending."""

    def name(self, place: _Place, /) -> bytes | None:
        """The name of what is held, a tombstone too; None when nothing is."""

    def close(self) -> None:
        """Let go of the device; open readers stay valid."""

def read_copies(store: Store, wanted: Buffer, /, *, objects: int, size: int, alone: int) -> bytes:
    """Copies of many objects, as many as fit into `size` bytes; see "Copies" in docs/sync.md.

    Objects with more than `alone` bytes of data are not given. ValueError for what is no question, or is about
    more than `objects` of them.
    """

def take_copies(store: Store, taken: Buffer, /, *, objects: int) -> bytes:
    """Take up to so many copies in one commit; what became of each. ValueError, and nothing is taken, for garbage."""

def sync_answer(store: Store, question: Buffer, ring_version: int, belongs: Buffer, /) -> bytes | None:
    """The answer to a question of a sync session; see "Messages" in docs/sync.md. None: it is not answered here.

    `belongs` has a byte for each partition of the ring, other than 0 where the answerer is a primary.
    """

def sync_suffixes(answer: bytes, /) -> tuple[int, int, list[tuple[int, bool, int, bytes]]] | None:
    """`Suffixes` taken apart: policy, version of the ring; each partition, whether `primary`, count, hashes in order.

    None for what is no such answer, or is out of order.
    """

def sync_listings(answer: bytes, /) -> tuple[int, int, list[tuple[int, bool, int, bytes]]] | None:
    """`ManyEntries` taken apart, as `sync_suffixes`; entries are in whatever order they came."""

def sync_differing(mine: bytes, theirs: bytes, both: bool, /) -> list[int]:
    """Suffixes that I hold otherwise than they; with `both` also those that only they hold. By `sync_suffixes`."""

def sync_in_order(entries: bytes, suffixes: Sequence[int], /) -> bool:
    """Whether entries (by `sync_listings`) are in order, and of these suffixes."""

def sync_entries(entries: bytes, /) -> list[tuple[bytes, int, int, int, int]]:
    """Entries (by `sync_listings`): digest, kind, timestamps of version, metadata and content type."""

def sync_suffix_heads(answer: bytes, /) -> tuple[int, int, list[int], bool, list[int]] | None:
    """What `Suffixes` are about: policy, version of the ring, partitions, whether the answerer is a primary of all.

    Then the partitions in which nothing is. None for what is no such answer, or is out of order.
    """

def sync_listing_heads(answer: bytes, /) -> tuple[int, int, list[int], bool, list[int]] | None:
    """The same of `ManyEntries`."""

def sync_differing_many(
    mine: bytes, theirs: bytes, both: bool, /
) -> tuple[list[int], list[int], list[int], list[int], bytes] | None:
    """As `sync_differing` of whole answers, as far as both go: partitions that are the same, and those that differ.

    Of those that differ also how many suffixes do, where these end in the last bytes, and those: as in a question about
    entries. None where they are no `Suffixes` about the same partitions.
    """

def sync_fits(answer: bytes, partitions: Sequence[int], asked: bytes, /) -> bool:
    """Whether `ManyEntries` are about the first of these partitions, in order, and of the suffixes `asked`."""

def sync_lacked(mine: bytes, theirs: bytes, since_s: float, until_s: float, forgotten_s: float, /) -> bytes | None:
    """As `sync_newer` of whole `ManyEntries`, as far as both go, without what has to wait.

    That is what is between `since_s` and `until_s`, and tombstones before `forgotten_s` of what they have nothing of.
    Of each object partition 4, need 1 (with 0x80: they have nothing of it), kind 1, digest 16, three timestamps of 8.
    """

def sync_ascending(numbers: Sequence[int], /) -> bytes | None:
    """How many there are, then each as its distance from the one before less one; None for what does not ascend."""

def sync_shared(
    rows: Sequence[Buffer], asker: int, answerer: int, skipped: Sequence[int], clockwise: bool, /
) -> list[int]:
    """The partitions that two devices of a ring share, ascending; `rows` are its tables, of 16-bit ids of devices.

    Those of which both are holders, or with `clockwise` those of which the answerer is the next holder behind the asker
    in the order of replicas that is not skipped.
    """

def sync_members(partitions: Sequence[int], /) -> bytes:
    """One hash over the numbers of partitions."""

def sync_branches(branches: bytes, /) -> int | None:
    """Of how many nodes these are the branches; None for what `PairRoots.branches` does not return."""

def sync_differing_branches(
    mine: bytes, theirs: bytes, start: int, end: int, nodes: Sequence[int], /
) -> tuple[int, list[int]] | None:
    """Compare the branches that two devices have of the first of these nodes; ValueError if there is no such step.

    Of how many nodes both have told them, and the branches that are not the same; None for what is no answer.
    """

def sync_copies(policy: int, lacked: bytes, /) -> tuple[bytes, bytes]:
    """Of `sync_lacked`: the question for copies, and the tombstones as copies; see "Copies" in docs/sync.md."""

def sync_newer(mine: bytes, theirs: bytes, /) -> list[tuple[tuple[bytes, int, int, int, int], int, bool]] | None:
    """What they lack of my entries: the entry, what of it (1 data, 2 tombstone, 3 POST), whether they have nothing.

    None when either side is out of order.
    """

@final
class TransportChunk:
    """Bytes in the transport's memory: a read-only buffer. The memory is in use as long as this or a view of it is.

    Below Python 3.12 a buffer has no method that says so, and types have to be told by a cast.
    """

    def __len__(self) -> int: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class TransportBuffer:
    """Memory for a chunk, to be filled and then shared. As a buffer it is what is not filled yet, to be
    written to."""

    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
    def advance(self, bytes: int, /) -> int:
        """So many bytes more are filled: how many are not. ValueError when there are not so many."""

    def write(self, offset: int, data: Buffer, /) -> None:
        """Copy bytes in. ValueError outside of it, or after `freeze`."""

    def freeze(self, length: int, /) -> TransportChunk:
        """Share the first bytes; once. BufferError while somebody may still write to them."""

@final
class TransportDigester:
    """Digests a stream beside whoever brings it, in threads of the node's."""

    def update(self, data: TransportChunk | Buffer, /) -> None:
        """Digest the next piece: a "digested" event when that is done. Copied as by `TransportUpload.send`."""

@final
class TransportWindow:
    """A chunk's share of its call's window. The bytes were copied out of the transport's memory already, so that who is
    slow keeps nobody else waiting for it; but the sender sends no more than the window until this is gone."""

@final
class TransportTicket:
    """A call that was made."""

    def cancel(self) -> None:
        """End it, unless it is over: a "failed" event."""

@final
class TransportUpload:
    """A call whose body is sent piece by piece."""

    def send(self, data: TransportChunk | Buffer, /) -> bool:
        """Send bytes. False: more than 8 MiB would wait then, or it has ended; a part of them may have been sent.

        "sent" events tell of bytes that have gone when no more than 2 MiB of the upload wait. Chunks, bytes and
        memoryviews of either are not copied, and may go to several peers; other buffers are. For a peer that fetches
        by RDMA, or from this machine's memory, all of them are, once for the same bytes.
        """

    def waiting(self) -> int:
        """Return how many bytes wait to be sent."""

    def end(self, footer: Buffer, /) -> None:
        """The body is complete: commit."""

    def cancel(self) -> None:
        """End it without committing, unless it has ended."""

@final
class TransportPeer:
    """Somebody to call. What becomes of a call is told by events under its token."""

    def call(
        self, token: int, method: int, timeout_s: float, trace: str, header: Buffer, body: TransportChunk | Buffer
    ) -> TransportTicket:
        """Make a call with its whole body, copied as by `TransportUpload.send`.

        ValueError for what is over a limit; all else is an event.
        """

    def upload(
        self, token: int, method: int, timeout_s: float, trace: str, header: Buffer, size: int | None
    ) -> TransportUpload:
        """Make a call whose body follows."""

_Target: TypeAlias = tuple[TransportPeer, str, int]
"""Peer, device, container replicas (bits) whose rows it keeps."""
_Guest: TypeAlias = tuple[bytes, bytes]
"""A grant, and an object's name."""
_Version: TypeAlias = tuple[int, int, bytes, bytes, _Pairs, _Pairs]
"""timestamp, delete at, name, content type, metadata, sysmeta."""
_One: TypeAlias = tuple[int, bytes, bytes]
"""Status, header, and bytes of the object."""
_Answer: TypeAlias = tuple[str, object, tuple[int, int] | None]
"""What it is, its value, and what a guest is told with it: version of the ring, clock in ms since 1970.

"written", to a write: (whether a container update is pending, whether there was an object). "many", to a message: a
list with a `_One` for each of its requests. "refused": (status, header). "failed": (kind, text), as of the event of
this name.
"""

@final
class TransportGroup:
    """Calls that were made together. An "answered" event says that something can be taken.

    That is when all were answered with success, when the first one was not, and from then on with each answer.
    """

    def take(self) -> tuple[list[tuple[int, _Answer]], bool]:
        """What has come since the last time, with the numbers of the calls; and whether all have been answered."""

    def hurry(self) -> None:
        """Be told at once of what has come, and of each answer that comes."""

    def cancel(self) -> None:
        """End it where there is no answer yet."""

@final
class TransportMany:
    """Many requests to a device in one message, until it is sent; `object` is the object's name of a guest, else empty.

    False: there is no room for it, as 256 requests or 2 MiB are in it. ValueError for what is over a limit.
    """

    def __new__(cls, device: str, grant: bytes | None, /) -> TransportMany: ...
    def put(self, object: Buffer, place: _Place, row: int, version: _Version, footer: _Footer, body: Buffer, /) -> bool:
        """Store a small object; its bytes are copied."""

    def get(self, object: Buffer, place: _Place, whole: int, proved: bool, /) -> bool:
        """Read an object that has at most `whole` bytes; a larger one is described, with no bytes."""

    def head(self, object: Buffer, place: _Place, proved: bool, /) -> bool:
        """Describe an object."""

    def delete(self, object: Buffer, place: _Place, row: int, timestamp: int, name: bytes, /) -> bool:
        """Store a tombstone."""

_RunPart: TypeAlias = tuple[TransportPeer, str, _Place, int, int, int | None, bytes | None, bool]
"""Peer, device, place, first byte, the byte behind the last; size and ETag of the whole object, if it must have these;
whether it must have none of the marks."""

@final
class TransportRun:
    """A run on its way; stopped when nobody refers to it any more."""

    def take(self) -> bytes | None:
        """The next bytes, a chunk or several small ones; the next objects may be asked for.

        None when there are none yet: a "sent" event tells of the next ones.
        """

    def copy(self) -> None:
        """Give back the transport's memory in which bytes wait: they may not be taken for a while."""

    def stop(self) -> None:
        """Want no more of it: an "end" event, unless it has ended. What has come can still be taken."""

    def close(self) -> None:
        """The same, and nothing of what has come either."""

    def ended(self) -> tuple[int, int, bytes, tuple[str, str] | None, tuple[int, bytes] | None] | None:
        """None while it goes on. Else: parts that were handed on as a whole; bytes of the next one that were, and the
        header of the answer of which they are; a failure's kind and text as in a "failed" event; a refusal's status and
        header. Without a failure or a refusal the next object is not what it should be, or the run was stopped."""

@final
class TransportNode:
    """This process's end of the transport: its threads, its memory, its keys. See docs/transport.md."""

    def __new__(
        cls,
        name: str,
        machine: str,
        keys: list[bytes],
        *,
        pool_bytes: int,
        threads: int = 1,
        socket_directory: PathLike[str] | str | None = None,
        rdma: bool = False,
        silence_s: float = 1.5,
        encryption: str = "none",
        authorities: list[str] | None = None,
    ) -> TransportNode:
        """Without keys this is a guest, which shows servers with a socket in `socket_directory` what it uploads. With
        `authorities` (PEM) this is a guest, which connects by TLS to servers with a certificate by one of them.

        `rdma`: fetch bodies by RDMA from and to peers that have it too, by TCP all others. `silence_s`: a peer
        that is silent for so many seconds, 1 to 60, is given up; ValueError for others. `encryption`: `none` connects
        by plain TCP, `accepted` and `required` by TLS; and `required` takes TLS alone from others, the first two both.
        ValueError for others, and for TLS with RDMA or without a key.

        OSError when the system has no thread, descriptor or memory left; with `rdma` also when this build has none,
        there is no device, or its memory may not be locked.
        """

    def listen(self, host: str, port: int, /) -> int:
        """Take connections, by TCP and, with a directory, on the same node. Gives the port."""

    def set_session(self, session: Buffer, secret: Buffer, /) -> None:
        """From now on connect as a guest, by this session of `guest_session`; connections that are open stay.

        ValueError when it is no session.
        """

    def fileno(self) -> int:
        """A descriptor that is readable while there are events."""

    def events(self) -> list[tuple[int, str, object]]:
        """All events since the last time: (token, what, value).

        "sent": bytes that have left. "reply": (status, header, size or None, the whole body or None, whole).
        "chunk": (bytes, TransportWindow). "end": footer. "failed": (kind, text), the kind being one of unreachable (it
        was not sent), lost, deadline, cancelled, overloaded, no-memory, going-away, remote (the handler failed) or
        invalid; it does not matter which side said so. "memory": TransportBuffer or None. "digested": bytes.
        "answered": None, as `TransportGroup` says. A reply that is whole, "end", "failed" and "memory" are the last
        ones of their token.
        """

    def peer(self, name: str, host: str | None, port: int, /) -> TransportPeer:
        """Somebody to call; kept for good, so ask once per peer."""

    def reserve(self, token: int, size: int, timeout_s: float, /) -> None:
        """Wait for memory for a chunk: a "memory" event, with None when the time is over."""

    def put(
        self,
        token: int,
        targets: list[_Target],
        guest: _Guest | None,
        place: _Place,
        version: _Version,
        footer: _Footer,
        body: TransportChunk | Buffer,
        timeout_s: float,
        trace: str,
        /,
    ) -> TransportGroup:
        """Store a small object at all of these devices; its bytes are shared, as by `TransportUpload.send`.

        ValueError for what is over a limit; all else is an answer.
        """

    def delete(
        self,
        token: int,
        targets: list[_Target],
        guest: _Guest | None,
        place: _Place,
        timestamp: int,
        name: bytes,
        timeout_s: float,
        trace: str,
        /,
    ) -> TransportGroup:
        """Store a tombstone at all of these devices; otherwise as `put`."""

    def send_many(
        self, token: int, messages: list[tuple[TransportPeer, TransportMany]], timeout_s: float, trace: str, /
    ) -> TransportGroup:
        """Send messages; each can be sent once. ValueError for what is over a limit; all else is an answer."""

    def run(
        self,
        token: int,
        parts: list[_RunPart],
        timeout_s: float,
        trace: str,
        ahead_bytes: int,
        marks: tuple[list[bytes], list[bytes]],
        /,
    ) -> TransportRun:
        """Read parts of up to 1024 objects as one stream: "sent" events when there is something to be taken where
        nothing was, and an empty "end" when it is over, for whatever reason. `timeout_s` is of each request. ValueError
        when there are no parts, or one is empty.

        The next object is asked for when `ahead_bytes` or fewer of what was asked for have not been taken. Each is
        checked: size and ETag, its time to go, and that metadata and system metadata have none of the `marks`.
        """

    def write_coded(
        self,
        token: int,
        places: _Places,
        version: _Version,
        generation: int,
        size: int | None,
        rows: list[int],
        waits: _WriteWaits,
        trace: str,
        /,
    ) -> CodedWriting:
        """Write an object with erasure coding: "sent" events when there may be room where none was found, and an empty
        "end" when the outcome is known. `generation` is random, and drawn for each attempt; `rows` are, for each place,
        the container replicas (bits) whose row its device keeps. ValueError for places, cells or a size that can't be.
        """

    def write_small(
        self,
        token: int,
        places: _Places,
        version: _Version,
        footer: _Footer,
        body: Buffer,
        rows: list[int],
        waits: _DeleteWaits,
        trace: str,
        /,
    ) -> CodedSmallWriting:
        """Write a small object as copies to the first of its places: an empty "end" event when the outcome is known.
        `rows` are, for each of these places, the container replicas (bits) whose row its device keeps. ValueError as
        above."""

    def delete_coded(
        self,
        token: int,
        places: _Places,
        timestamp: int,
        name: bytes,
        rows: list[int],
        waits: _DeleteWaits,
        trace: str,
        /,
    ) -> CodedDeleting:
        """Delete an object with erasure coding: an empty "end" event when the outcome is known. ValueError as above."""

    def post_coded(
        self,
        token: int,
        places: _Places,
        of: int | None,
        post: _Post,
        rows: list[int],
        waits: _DeleteWaits,
        trace: str,
        /,
    ) -> CodedPosting:
        """Post metadata on top of the version of an object with erasure coding that has the timestamp `of`, or to the
        copies of a small one if it is None: an empty "end" event when the outcome is known. ValueError as above."""

    def read_coded(
        self,
        token: int,
        places: _Places,
        first: list[int],
        start: int,
        stop: int,
        waits: _ReadWaits,
        trace: str,
        /,
    ) -> CodedReading:
        """Read bytes `[start, stop)` of an object with erasure coding, to its end if there are fewer: a "sent" event
        when it is known what the object is, more of them when there is something to be taken where nothing was, and an
        empty "end" when it is over. The places in `first` are asked first what it is, in their order.
        ValueError for places that can't be."""

    def rebuild_coded(
        self, token: int, places: _Places, lack: _Lack, waits: tuple[float, float], trace: str, /
    ) -> CodedRebuilding:
        """Make the fragment that a place lacks; an "end" event when the outcome is known. `waits` are the seconds of
        each request, and for which the device may take the fragment. ValueError as above."""

    def recover_coded(
        self, token: int, places: _Places, write: _Write, ballot: tuple[int, int], timeout_s: float, trace: str, /
    ) -> CodedRecovering:
        """Have the chosen devices decide about a write, by a ballot of a round and a random nonce; an "end" event when
        the outcome is known. ValueError as above, and when a device was not chosen for each fragment."""

    def upload_buffer(self, size: int, /) -> TransportBuffer | None:
        """Memory for up to 1 MiB that is to be uploaded, if there is some. Uploads have half of it at most."""

    def reserve_upload(self, token: int, size: int, timeout_s: float, /) -> None:
        """Wait for it, behind all others who wait: a "memory" event, with None when the time is over."""

    def digester(self, token: int, hasher: Hasher, /) -> TransportDigester:
        """Digest what follows for this hasher, which nobody else feeds meanwhile; its events have this token."""

    def set_keys(self, keys: list[bytes], /) -> None:
        """From now on handshakes use these keys, the first one by preference."""

    def report(self) -> list[dict[str, object]]:
        """Counters of each peer; `latency_buckets`[n]: requests that took less than 2^n µs."""

_Message: TypeAlias = tuple[int, bytes]
"""A method's number and its header."""
_Footer: TypeAlias = tuple[int, int, bytes]
"""size, xxh3, ETag."""

@final
class ObjectWire:
    """What object servers are asked and answer, as bytes; see "Object servers" in docs/transport.md.

    `device` is its name on its server, `row` container replicas as bits. ValueError for what is over a limit, or can't
    be read.
    """

    @staticmethod
    def put(
        device: str,
        place: _Place,
        row: int,
        timestamp: int,
        delete_at: int,
        name: bytes,
        content_type: bytes,
        metadata: _Pairs,
        sysmeta: _Pairs,
        footer: _Footer | None,
        /,
    ) -> _Message:
        """Store a version; without a footer here it stands behind the body."""

    @staticmethod
    def footer(footer: _Footer, /) -> bytes:
        """What stands behind a PUT's body."""

    @staticmethod
    def prepare(device: str, place: _Place, row: int, timestamp: int, size: int | None, /) -> _Message:
        """Whether a version would be taken."""

    @staticmethod
    def get(device: str, place: _Place, start: int, stop: int, proved: bool, /) -> _Message:
        """Read bytes `[start, stop)`; `proved`: Unproved instead while the partition is in doubt."""

    @staticmethod
    def head(device: str, place: _Place, proved: bool, /) -> _Message:
        """Describe; `proved` as of `get`."""

    @staticmethod
    def post(
        device: str,
        place: _Place,
        row: int,
        timestamp: int,
        delete_at: int,
        metadata: _Pairs,
        content_type: bytes | None,
        content_type_timestamp: int,
        proved: bool,
        /,
    ) -> _Message:
        """Merge metadata."""

    @staticmethod
    def delete(device: str, place: _Place, row: int, timestamp: int, name: bytes, /) -> _Message:
        """Store a tombstone."""

    @staticmethod
    def remove(device: str, place: _Place, entry: _Entry, /) -> _Message:
        """Forget a copy, if it is still this one."""

    @staticmethod
    def policies(device: str, /) -> _Message:
        """Storage policies with anything on the device."""

    @staticmethod
    def partitions(device: str, policy: int, /) -> _Message:
        """Partitions with anything in them."""

    @staticmethod
    def suffixes(device: str, policy: int, partition: int, /) -> _Message:
        """Set hashes of suffixes."""

    @staticmethod
    def entries(device: str, policy: int, partition: int, suffix: int, /) -> _Message:
        """What is held in a suffix."""

    @staticmethod
    def acknowledge(device: str, versions: list[tuple[_Place, int]], /) -> _Message:
        """Rows of these versions are through; up to 1000."""

    @staticmethod
    def revoke(device: str, account: bytes, container: bytes, before_ms: int, /) -> _Message:
        """Guests' grants for the container, or with an empty one for the account, that were issued before this time
        count no more, at the whole server."""

    @staticmethod
    def written(header: Buffer, /) -> tuple[bool, bool]:
        """Parse the answer to a write: whether its update is pending; for DELETE, whether there was an object."""

    @staticmethod
    def posted(header: Buffer, /) -> tuple[bool, bool, _Info | None]:
        """Parse the answer to POST: the same, and the object as it is since where its update is pending."""

    @staticmethod
    def found(header: Buffer, /) -> tuple[_Info, int | None]:
        """The answer to GET and HEAD: the object, and the xxh3 of the body unless it stands behind it (8 bytes)."""

    @staticmethod
    def refusal(status: int, header: Buffer, /) -> tuple[str, str, int | None]:
        """A status other than 0: the name of the class in `swiftlet.errors`, a sentence, a timestamp or None."""

    @staticmethod
    def numbers(raw: Buffer, /) -> list[int]:
        """The body of POLICIES and PARTITIONS."""

    @staticmethod
    def suffix_hashes(raw: Buffer, /) -> list[tuple[int, bytes]]:
        """The body of SUFFIXES."""

    @staticmethod
    def entry_list(raw: Buffer, /) -> list[_Entry]:
        """The body of ENTRIES."""

@final
class ObjectServer:
    """Object servers of one process over stores that are open: requests are answered by native threads.

    The stores may be used otherwise at the same time, and stay the caller's to close, after `stop`.
    """

    def __new__(
        cls,
        name: str,
        machine: str,
        keys: list[bytes],
        stores: Mapping[str, Store],
        unused: Mapping[str, str],
        *,
        pool_bytes: int,
        threads: int = 1,
        threads_per_device: int = 4,
        max_requests_per_device: int = 512,
        buffer_bytes_per_device: int = 268435456,
        socket_directory: PathLike[str] | str | None = None,
        rdma: bool = False,
        silence_s: float = 1.5,
        doubts: Mapping[str, Doubts] | None = None,
        encryption: str = "none",
        guests: tuple[int, int, int] | None = None,
        hash_path: tuple[bytes, bytes] = ...,
    ) -> ObjectServer:
        """`guests`: the bytes of memory and the connections that guests together may have, and the bytes of memory that
        is shared with those on this machine; None lets none in.
        `hash_path`: what the cluster has before and after names when it hashes them, by which guests' are checked.

        `stores` by device name, and their `doubts` (none: nothing is in doubt); `unused`: devices that can't be
        used, and why. `silence_s` and `encryption` as `TransportNode`'s.

        OSError when the system has no thread, descriptor or memory left, or as by `TransportNode` with `rdma`."""

    def listen(self, host: str, port: int, /) -> int:
        """Take connections, by TCP and, with a directory, on the same node. Gives the port. OSError."""

    def set_keys(self, keys: list[bytes], /) -> None:
        """From now on handshakes use these keys; connections that are open stay. Guests' grants have to be by them."""

    def set_ring(self, policy: int, version: int, /) -> None:
        """Tell guests of this version of a policy's ring with every answer."""

    def set_codings(self, codings: dict[int, tuple[int, int, int] | None], /) -> None:
        """Know these policies: the data and parity fragments and the bytes of a cell of those with erasure coding, None
        for the others. What arrives for another coding is refused; for unknown policies everything is taken."""

    def guests(self) -> int:
        """How many connections guests have."""

    def stats(self) -> list[dict[str, object]]:
        """Per device: `device`, `requests` at work, `buffered_bytes` held for them, `refused` for there were too many,
        `received_bytes`, `sent_bytes` of bodies, `answered`: (operation, "ok" or the error's name, how many) each."""

    def report(self) -> list[dict[str, object]]:
        """Counters of each client, as of `TransportNode`."""

    def leave(self) -> None:
        """Take no more connections, and ask clients for no more requests; those under way are answered."""

    def stop(self) -> None:
        """End connections and threads; what was under way is given up. Harmless a second time."""
