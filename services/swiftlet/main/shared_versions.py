"""The version of a file that each worker process of a service uses, in shared memory, for the report of any of them.

Workers read files each for itself, and a report comes from one of them. Fault model: a worker that has not begun to
serve has no version. The version of one that died stays until its successor enters its own, before it serves.
"""

from __future__ import annotations

import mmap

_SIZE = 16
"""The size of a version in bytes."""


class SharedVersions:
    """One version for each worker; created before the workers are."""

    def __init__(self, workers: int = 1) -> None:
        """Create it without versions. Raises OSError when the system has no memory left."""
        self._memory = mmap.mmap(-1, _SIZE * workers)
        self._workers = workers

    def tell(self, worker: int, version: str) -> None:
        """Record that a worker uses this version, of up to 16 ASCII characters, from now on."""
        self._memory[worker * _SIZE : (worker + 1) * _SIZE] = version.encode("ascii").ljust(_SIZE, b"\0")

    def all(self) -> list[str | None]:
        """Return the versions in use, each once; with None among them if a worker has not recorded any yet."""
        slots = (self._memory[worker * _SIZE : (worker + 1) * _SIZE] for worker in range(self._workers))
        return list(dict.fromkeys(slot.rstrip(b"\0").decode("ascii") or None for slot in slots))
