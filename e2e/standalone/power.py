"""Power loss of processes that run: what they had written and not synced is gone once they are killed.

A library (`synced.c`) that all services of a store are started with notes what each sync has covered. Files that only
grow, journals of container updates and SQLite's logs, are cut where the last sync of them had begun.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("synced.c")
_JOURNALS, _LOGS = "updates/*", "*-wal"
"""Patterns of files that only grow, or begin anew; other files are synced before anything relies on them."""


class Power:
    """Takes away what was not synced."""

    def __init__(self, root: Path) -> None:
        """Build the library below `root`, where the notes are kept."""
        self._library = root / "synced.so"
        self._notes = root / "syncs"
        command = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True)
        self.lost_bytes = 0
        """Bytes that were cut off journals of container updates and off logs."""
        self.lost_rows_bytes = 0
        """Bytes that were cut off journals of container updates."""

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables of services whose power may fail."""
        return {"LD_PRELOAD": str(self._library), "SYNCS_FILE": str(self._notes)}

    def cut(self, device: Path) -> None:
        """Leave of a device's files what was synced. Its service has been killed."""
        synced: dict[int, int] = {}
        for line in self._notes.read_text().splitlines():
            inode, size = map(int, line.split())
            synced[inode] = size
        for pattern in (_JOURNALS, _LOGS):
            for file in device.rglob(pattern):
                known = file.stat()
                lost = known.st_size - synced.get(known.st_ino, 0)
                if lost > 0 and not file.name.startswith("."):
                    self.lost_bytes += lost
                    self.lost_rows_bytes += lost if pattern == _JOURNALS else 0
                    with file.open("r+b") as opened:
                        opened.truncate(known.st_size - lost)
