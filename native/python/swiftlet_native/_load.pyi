"""The part of the treaty about the load generator; `swiftlet_native` has all of its names."""

from collections.abc import Sequence
from typing import Any, TypeAlias, final

_Size: TypeAlias = tuple[float, int, int, int | None, float]
"""Weight, least and most bytes, and median and sigma of a lognormal distribution; without a median all sizes alike."""

@final
class Load:
    """Loads a store in threads of its own. One thing is done at a time: it is begun, waited for, and finished.

    The objects that it has stored are known until the generator is gone. All sizes are in bytes.
    """

    def __new__(
        cls,
        *,
        api: str,
        keys: tuple[str, str, str] | None,
        addresses: Sequence[tuple[str, int]],
        host: str,
        path: str,
        headers: Sequence[tuple[str, str]],
        authorities: bytes | None,
        server_name: str,
        prefix: str,
        containers: int,
        sizes: Sequence[_Size],
        mix: Sequence[tuple[str, float]],
        page: int,
        seed: int,
        verify: float,
        timeout_s: float,
        threads: int,
    ) -> Load:
        """`api`: `swift`, `s3` (with `keys`: access key, secret key and region; None signs nothing) or `files` (HTTP
        without containers and listings). Connections go to `addresses` (of the system, not names) in turn; `host` is
        what `Host` says; `path` is the account's, percent-encoded. With `authorities` (PEM) it is HTTPS, and
        certificates have to be for `server_name`.

        `mix`: weights of create, read, update, delete, list and head; `page`: names in a listing; `verify`: the share
        of reads, from 0 to 1, whose bytes are compared with what was written. With HTTP the others' bytes are dropped
        by the kernel, with HTTPS they are compared too, unless it is 0. ValueError when something is out of its bounds.
        """

    def begin(self, phase: str, connections: int, objects: int = 0) -> None:
        """Begin create_containers, fill (store so many `objects`), empty or delete_containers.

        ValueError for another phase, RuntimeError when something was begun and is not finished.
        """

    def measure(
        self,
        connections: int,
        *,
        warm_up_s: float,
        duration_s: float | None,
        operations: int | None,
        think_s: float,
        interval_s: float | None,
        is_random: bool,
    ) -> None:
        """Begin operations of the mix, for a duration or a number after the warm-up.

        With `interval_s` they begin so far apart, whatever the store does (an open loop); otherwise each connection
        begins the next one `think_s` after the last has ended. `is_random`: these times are means of exponential ones.
        Errors as of `begin`.
        """

    def wait(self, timeout_s: float) -> bool:
        """Wait until what was begun is done, at most so long; whether it is. Other Python threads run meanwhile."""

    def recent(self) -> dict[str, Any]:
        """What happened since the last call: succeeded, failed, moved_bytes, median_s, p99_s."""

    def cancel(self) -> None:
        """Begin no more operations. Those in flight have two seconds to end; what is dropped then does not count."""

    def finish(self) -> dict[str, Any]:
        """Wait for the end; what came of it. RuntimeError when nothing was begun, OSError when a thread has failed.

        - operations: by name, `succeeded` and their `bytes`, `compared` of these (reads whose bytes were compared),
          `ended` (within the window), `latency` and `first_byte` as lists of nanoseconds and how many took about so
          long, `failures`: by kind, how many, and an example;
        - window_s, moved_bytes: the time over which rates are, and the bytes of bodies that moved in it;
        - workers_operations_per_s, workers_bytes_per_s: sums over connections of what each did per busy second;
        - lateness: how late operations of an open loop began that found a free connection, as above;
        - resent: requests that were sent again, as their connection had been closed for being idle;
        - ended_early: None, or why;
        - cpu_s, busiest: processor time of the threads, and the share of time that the busiest had a processor;
        - objects, left: objects that can be read, and those that may exist.
        """
