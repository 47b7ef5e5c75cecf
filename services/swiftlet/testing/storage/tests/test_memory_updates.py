"""The twin of a device's update table does what every table does."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftlet.testing.storage.memory_updates import MemoryJournal, MemoryUpdates
from swiftlet.testing.storage.updates_conformance import UpdatesConformance


class TestMemoryUpdates(UpdatesConformance):
    @pytest.fixture(autouse=True)
    def _journal(self, tmp_path: Path) -> None:
        self.journal = MemoryJournal()

    def start(self) -> MemoryUpdates:
        return MemoryUpdates(self.journal)
