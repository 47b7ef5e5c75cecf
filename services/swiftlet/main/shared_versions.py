"""Which version of a file each worker process of a service uses, for the report of any of them: in shared memory.

Workers look at files each for itself, and a report comes from one of them. Fault model: a worker that has not begun to
serve has no version. One that died leaves its last one until the next in its place says its own, before it serves.
"""

from __future__ import annotations

import mmap

_SIZE = 16
"""Bytes for a version."""


class SharedVersions:
    """One version for each worker; made before the workers are."""

    def __init__(self, workers: int = 1) -> None:
        """No worker has said anything; OSError when the system has no memory left."""
        self._memory = mmap.mmap(-1, _SIZE * workers)
        self._workers = workers

    def tell(self, worker: int, version: str) -> None:
        """A worker uses this version, of up to 16 ASCII characters, from now on."""
        self._memory[worker * _SIZE : (worker + 1) * _SIZE] = version.encode("ascii").ljust(_SIZE, b"\0")

    def all(self) -> list[str | None]:
        """The versions in use, each once; None among them when a worker has not said anything yet."""
        slots = (self._memory[worker * _SIZE : (worker + 1) * _SIZE] for worker in range(self._workers))
        return list(dict.fromkeys(slot.rstrip(b"\0").decode("ascii") or None for slot in slots))
