"""The part of the treaty about the native front; `swiftlet_native` has all of its names."""

from collections.abc import Sequence
from typing import TypeAlias, final

from typing_extensions import Buffer

from swiftlet_native import CodedDevices, TransportPeer

_Place: TypeAlias = tuple[int, int, bytes]
"""Storage policy, partition, 16-byte digest."""
_Socket: TypeAlias = int
"""A descriptor."""
_Counted: TypeAlias = tuple[str, int, int, int, float, list[int]]
"""method, status, bytes of the bodies that came and went, seconds from heads to last bytes, and how many answers took
up to each bound and longer than the one before; the last number is that of those beyond all."""
_Holder: TypeAlias = tuple[bool, bytes, bytes]
"""Whether to write, token (none: empty), path up to the container's slash; as sent."""
_Made: TypeAlias = tuple[list[int], bytes, list[int], bytes, list[tuple[_Place, int]], list[list[int]], list[list[int]]]
"""Objects of one container: numbers for `listed`, `/account/container/`, for each replica the container replicas whose
update it keeps pending (as bits), the rows in JSON, places and timestamps, the devices' numbers in the ring, and the
slices of room that each takes a part of."""
_Both: TypeAlias = tuple[int, int]
"""Objects and bytes."""
_Level: TypeAlias = tuple[int, _Both, _Both, int]
"""A pool, what is left, what was taken, and the number of PUTs that found too little."""
_Listed: TypeAlias = tuple[bytes, list[tuple[int, _Both]], bytes, int]
"""`/account/container/`, slices with the sums of their parts, name and timestamp of the newest row."""
_Returned: TypeAlias = tuple[int, _Both, bool]
"""A slice, what nothing is stored of, and whether nothing more is taken of it."""

@final
class Changes:
    """Counters in memory that this process shares with those that it forks: what one changes all see at the next look.

    A slot beyond the last one counts from the first again.
    """

    def __new__(cls, slots: int, /) -> Changes:
        """So many counters, all zero. OSError when the system has no memory left."""

    def seen(self, slot: int, /) -> int:
        """Where a counter stands."""

    def tell(self, slot: int, /) -> None:
        """Count a change."""

_Secured: TypeAlias = tuple[int, tuple[str, int], tuple[str, int]]
"""Token of a connection with TLS, the client's address and port, and those of our side."""
_Handed: TypeAlias = tuple[_Socket, bytes, int, bool, int | None, _Secured | None]
"""Descriptor, what was read, how often it came back unanswered, whether devices may have deleted, what version they may
have stored."""

@final
class Front:
    """The thread that owns listening sockets: answers what there is a grant for, hands over all other
    connections.

    See docs/design/2026-11-21-front.md. Paths and tokens are as clients send them.
    """

    def __new__(
        cls,
        secret: tuple[bytes, bytes],
        changes: Changes,
        *,
        nonce: int,
        keepalive_s: float,
        client_timeout_s: float,
        answer_timeout_s: float,
        store_timeout_s: float,
        large_bytes: int,
        max_connections: int = 8192,
        max_handed: int = 1024,
        max_served: int = 50000,
        tls: tuple[Buffer, Buffer, Buffer] | None = None,
    ) -> Front:
        """`secret`: what stands before and behind a name where it is hashed; `changes` end the grants that saw less of
        them; `nonce`: in the timestamps made here.
        `large_bytes`: how many bytes answers of more than 64 KiB may have together; what finds no room is Python's.
        Above the first two of the other limits connections wait to be accepted, above the last the front answers
        nothing. With `tls` (certificate with its chain and key in PEM, secret of session tickets) clients speak TLS.
        OSError when the system has no thread or descriptor left; ValueError when the certificate can't be used.
        """

    def renew(self, certificate: Buffer, key: Buffer, /) -> None:
        """Use these, in PEM, for new connections. ValueError when they can't be used: then the last ones stay."""

    def handshakes(self) -> list[tuple[str, int]]:
        """How many TLS handshakes so far were `full` or `resumed`, or failed: with `plain` HTTP, by the `protocol`,
        `closed` by the client, or `late`.
        """

    def listen(self, descriptor: _Socket, /) -> None:
        """Accept connections from a listening socket, which stays the caller's to close. OSError."""

    def adopt(self, descriptor: _Socket, bounces: int, token: int | None = None, /) -> None:
        """Take a connection back that stands between two requests; the descriptor is the front's from now on.

        `bounces`, and with TLS `token`, are what it was handed over with.
        """

    def fileno(self) -> _Socket:
        """A descriptor that is readable while something was handed over or made; `handed` silences it."""

    def handed(self, most: int = ..., /) -> list[_Handed]:
        """What was handed over, as it came, so many at most: descriptors, the caller's from now on, what was read of
        each, how often in a row it was taken back and handed over again without an answer in between, whether that
        begins with a DELETE that devices may have carried out, so that its object existed, the version that devices may
        have stored of a PUT, and, when the descriptor is one end of a pair behind TLS, the token of the connection, and
        the addresses of the client and of our side.

        The descriptor tells of what comes after this call: come back for what is left here.
        """

    def waiting(self) -> int:
        """Connections that were handed over and not taken."""

    @staticmethod
    def asked(begins: Buffer, received: int, /) -> _Holder | None:
        """What a request needs a grant for that the front may answer, if it keeps its connection and is complete with
        so many bytes. `begins` has its head.
        """

    def records(self, bounds_s: Sequence[float], /) -> tuple[str, list[_Counted]]:
        """What was answered since the last time: a JSON object for each, in lines with `method`, `path` as sent,
        `status`, `bytes_in`, `bytes_out`, `duration_s` (to the last byte), `remote` and `request_id`; and sums by
        method and status, with `bounds_s` in ascending order.
        """

    def made(self) -> list[_Made]:
        """Objects and deletions that all of their devices have made durable since the last time; `fileno` tells of
        them, too.
        """

    def listed(self, tokens: list[int], is_listed: bool, /) -> None:
        """Rows of what was made are where they have to be: clients are told; or else the requests are handed over."""

    def storing(self) -> int:
        """Writes that devices carry out, or whose rows are being listed."""

    def hedged(self) -> int:
        """Reads for which a second device was asked since the last call."""

    def grant(
        self,
        write: bool,
        token: Buffer,
        prefix: Buffer,
        container: Buffer,
        policy: int,
        reads: bool,
        xxh3_etags: bool,
        expiring: bool,
        rows: list[int],
        awaited: int,
        seen: tuple[int, int],
        valid_s: float,
        pools: list[int],
        /,
    ) -> bool:
        """Let who sends the token (none: empty) read any object below the path `prefix`, which ends with a slash; or
        delete any and write small ones, whose replicas keep their updates pending for the container replicas of `rows`,
        as bits; clients wait until those of `awaited` have the update. With `reads` they may be told whether there is
        an object. With `xxh3_etags` these have an ETag from xxh3, unless the client compares its MD5. With `expiring`
        devices are asked before a write, and one that replaces or deletes an object that expires is handed over.

        `container` is `/account/container/`, decoded; `seen` is a slot of the changes, and where it stood before this
        was decided. Each object that is written takes a part of each of the `pools`. False: there are too many.
        """

    def extend(self, grants: list[tuple[_Holder, float]], /) -> None:
        """Let each grant go on for so many seconds from now, if it still holds; it counts as unused since."""

    def has(self, write: bool, token: Buffer, prefix: Buffer, /) -> bool:
        """Whether there is such a grant."""

    def undecided(self) -> list[tuple[bool, bytes, bytes]]:
        """Return whether to write, token and prefix of requests that wait for a decision since the last call; each is
        to be told by `decided`.
        """
    def decided(self, write: bool, token: bytes, prefix: bytes, is_granted: bool, /) -> None:
        """Let the requests that wait for this decision go on: by their grant, or to Python."""
    def withdraw(self, account: Buffer | None, /) -> None:
        """End all grants in an account, or all there are."""

    def used(self) -> list[_Holder]:
        """Live grants that were used since they were given."""

    def lend(self, pool: int, slice: int, objects: int, bytes: int, valid_s: float, /) -> None:
        """Add a slice of room to a pool: PUTs take parts of it within so many seconds. Its number is in use once."""

    def recall(self, pool: int, /) -> None:
        """Take no more of a pool: its slices end."""

    def spent(self) -> tuple[list[_Level], list[_Listed], list[_Returned]]:
        """What became of room since the last time: for each pool what is left, what was taken, and the PUTs that found
        too little; for each container, the slices whose parts became rows in all of its replicas; and what nothing is
        stored of, with slices that have ended.
        """

    def route(
        self,
        policy: int,
        part_power: int,
        rows: list[Buffer],
        devices: list[tuple[TransportPeer, str] | None],
        distances: list[int],
        sites: list[tuple[int, int, int, bool] | None],
        near: int | None,
        avoided: list[int],
        /,
    ) -> None:
        """Where a policy's objects are: `rows[replica][partition]`, 16 bits each, is a device's number; devices
        without a peer are not asked, and reads ask one with the smallest of the `distances` of devices, which are 0 to
        255 each, or none. `sites` have for each device its region, zone and node by numbers, and whether it has any
        weight. Writes go to the partition's devices, or to those of the region `near` and the handoffs there.
        Devices whose numbers are `avoided` are as in `avoid`. ValueError when it is no ring.
        """

    def route_coded(
        self,
        policy: int,
        part_power: int,
        rows: list[Buffer],
        devices: CodedDevices,
        coding: tuple[int, int, int, bool],
        distances: list[int],
        sites: list[tuple[int, int, int, bool] | None],
        /,
    ) -> None:
        """Where a policy's objects with erasure coding are, as for `route`: `coding` has the numbers of data and parity
        fragments, the bytes of a cell, and whether small objects are copies. ValueError when it is no ring, or no such
        coding.
        """

    def avoid(self, policy: int, numbers: list[int], /) -> None:
        """Ask others before these devices of a policy's ring, and before no others. Of devices that have whole objects
        they are asked only for the rest of a long answer that nobody else has.
        """

    def unreached(self) -> list[tuple[int, int]]:
        """Policies with erasure coding, and devices of them by their numbers, that could not be reached since the last
        time.
        """

    def unroute(self, policy: int, /) -> None:
        """Nobody knows where a policy's objects are."""

    def route_containers(
        self, part_power: int, rows: list[Buffer], devices: list[tuple[TransportPeer, str] | None], /
    ) -> None:
        """Where container databases are, as for `route`: rows of what is made go to their servers from here, where all
        of a container's replicas take them; `made` has the others.
        """

    def unroute_containers(self) -> None:
        """Nobody knows where container databases are: `made` has all rows."""

    def silent_containers(self) -> list[int]:
        """Numbers of container servers that have failed since the last time."""

    def newest(self) -> int:
        """The newest timestamp that was given to a write here; 0 before the first one."""

    def rows(self) -> dict[str, int]:
        """Rows of writes. As of now: `delivering` (they wait for container servers), `not_durable` there yet,
        `acknowledging` (devices have not answered). So far: `messages` to container servers, rows `sent` in them,
        `taken` by all, `refused` by one, `left` to Python without an attempt, `left_pending` at the devices although
        they were taken; acknowledgements that devices have `acknowledged`, that were `lost`, and `dropped`.
        """

    def open(self) -> int:
        """Connections that are here."""

    def busy(self) -> int:
        """Requests that are being worked on here, up to half a second ago; not those that were handed over."""

    def bridged(self) -> int:
        """Connections with TLS that were handed over: their bytes are passed on here."""

    def is_alive(self) -> bool:
        """Whether its thread runs; without it nobody accepts."""

    def leave(self) -> None:
        """Accept no more, hand over what is idle, and tell the other clients that their next answer is the last."""

    def has_left(self) -> bool:
        """Whether `leave` has been done: what is open is being answered."""
