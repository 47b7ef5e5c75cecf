"""The conformance suite of `CodedTransport` against object servers in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swiftlet.api.tests.coded import CODED, CODING, CodedServers
from swiftlet.testing.storage.coded_conformance import DEVICES, CodedPeer, CodedTransportConformance


class TestNatively(CodedTransportConformance):
    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self._directory = tmp_path

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[CodedPeer]:
        servers = CodedServers(self._directory, DEVICES)
        try:
            yield CodedPeer(servers.coded, servers.ring, CODED, CODING, servers.away)
        finally:
            await servers.close()
