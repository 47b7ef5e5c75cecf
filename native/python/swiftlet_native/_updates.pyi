"""The part of the treaty about container updates that native code takes; `swiftlet_native` has all of its names."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TypeAlias, final

_Packed: TypeAlias = tuple[str, int, int, str, str, None, None, int]
"""A row as `swiftlet.listing` stores it: name, timestamp less 2^63, size, ETag, content type, and 1 for a marker."""

@final
class UpdateTable:
    """Container updates of one device: rows that its clients have brought, until they are folded into databases.

    `ContainerServer` takes rows for databases that are open. A row that was taken survives SIGKILL, and is durable 50
    ms later. A database is named by partition, account and container. All calls but `take` and `stop` return at once.

    Limits: 400,000 rows or 128 MiB, and 256 MiB of journal; above them rows are refused until rows are folded, and
    files let go by `durable_in_databases`.
    """

    def __new__(cls, directory: PathLike[str] | str, device: str) -> UpdateTable:
        """The table of the journal in this directory, made if there is none; rows of an earlier process are in it, and
        their databases are due. `device` is for messages.

        OSError: it can't be read, another process has it, or it is of another version. Its rows would be missing in
        listings, so the device's databases must not be served then.
        """

    def open(self, partition: int, account: str, container: str) -> None:
        """Rows may be taken from now on. Nothing opens once the device has `failed`."""

    def close(self, partition: int, account: str, container: str) -> None:
        """No row is taken after the return; those that are here stay."""

    def close_all(self, reason: str) -> None:
        """The same for all databases, which can be opened again. Native code does so when the device is full."""

    def has(self, partition: int, account: str, container: str) -> bool:
        """Whether there are rows in the table, or out for folding."""

    def take(self, partition: int, account: str, container: str, rows: Sequence[_Packed]) -> bool:
        """Do what an UPDATE does, and wait until it is answered. False: its database is not open; nothing has happened.

        ValueError for what no message may have, and rows with timestamps of POSTs; OSError: a limit is reached, or the
        device is full or has failed.
        """

    def take_out(self, partition: int, account: str, container: str) -> list[_Packed]:
        """The rows, by name; `folded` has to follow unless there are none. ValueError when they are out already."""

    def folded(self, partition: int, account: str, container: str, merged: bool) -> None:
        """End a `take_out`: the rows were merged into the database, or go back. Harmless when none are out.

        Rows that went back are not due again before there are very many of them: whoever puts them back tries again.
        """

    def drop(self, partition: int, account: str, container: str) -> None:
        """Forget a database, also rows that are out, and close it: it is gone."""

    def databases(self) -> list[tuple[int, str, str]]:
        """All databases with rows in the table, or out."""

    def fileno(self) -> int:
        """A descriptor that is readable when databases became due, or the device has failed; `due` silences it."""

    def due(self) -> list[tuple[tuple[int, str, str], bool]]:
        """Databases that got their first row since the last `take_out`, which have some time, and those that got so
        many that they should be folded at once: True says that. Each is told once, unless it gets many afterwards.
        """

    def mark(self) -> int:
        """A number for `durable_in_databases`: lower journal files have only rows for which `folded` with `merged` was
        called before, or whose database was dropped.
        """

    def durable_in_databases(self, upto: int) -> None:
        """What was folded before this mark is in databases whose logs were synced after that: lower journal files go,
        soon.
        """

    def failed(self) -> str | None:
        """Why nothing is taken or becomes durable any more: the journal could not be written or synced. This is a
        failure of the device, for good; rows that are here can be folded.
        """

    def stop(self) -> None:
        """Append and sync what was taken, and end the threads; no row is taken any more. Harmless a second time."""

    def status(self) -> dict[str, object]:
        """`rows` in the table or out, their `bytes`, `databases` with rows, `open` databases, `journal_files` and
        `journal_bytes`, since the start rows `taken`, messages `refused` (limits, a full or failed device) and messages
        `not_taken` (their database was not open), and `failed`: why, or None.
        """

@final
class ContainerServer:
    """The native half of the container servers of one process: takes rows for update tables.

    The tables stay the caller's to stop, after `stop` of this.
    """

    def __new__(
        cls,
        name: str,
        machine: str,
        keys: list[bytes],
        tables: Mapping[str, UpdateTable],
        unused: Mapping[str, str],
        *,
        pool_bytes: int,
        threads: int = 1,
        socket_directory: PathLike[str] | str | None = None,
        silence_s: float = 1.5,
        encryption: str = "none",
    ) -> ContainerServer:
        """`tables` by device name; `unused`: devices that can't be used, and why. The rest as `ObjectServer`'s.

        OSError when the system has no thread, descriptor or memory left.
        """

    def listen(self, host: str, port: int, /) -> int:
        """Take connections, by TCP and, with a directory, on the same node. Gives the port. OSError."""

    def set_keys(self, keys: list[bytes], /) -> None:
        """From now on handshakes use these keys; connections that are open stay."""

    def report(self) -> list[dict[str, object]]:
        """Counters of each client, as of `TransportNode`."""

    def leave(self) -> None:
        """Take no more connections, and ask clients for no more requests; those under way are answered."""

    def stop(self) -> None:
        """End connections and threads; what was under way is given up. Harmless a second time."""
