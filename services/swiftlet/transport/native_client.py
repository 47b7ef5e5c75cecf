"""A member of the cluster as a client of native object servers: with the cluster's keys, runs, and RDMA.

Fault model: see `swiftlet.transport.native_caller`. `swiftlet.transport.rdma` says what RDMA may lack.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from swiftlet_native import TransportNode

from swiftlet.boundaries.objects import Marks, RunPart
from swiftlet.errors import NodeError
from swiftlet.transport.native_caller import MAX_NAME, NativeCaller, machine, trace
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_runs import NativeRun, PartParts, run_part
from swiftlet.transport.rdma import RdmaState
from swiftlet.transport.rdma import start as start_rdma


class NativeClient(NativeCaller):
    """The calls of a process of the cluster; runs in one event loop from the first call on."""

    def __init__(self, settings: NativeSettings, keys: Sequence[bytes]) -> None:
        """No thread is started before `open` or the first call."""
        super().__init__(settings)
        self._keys = list(keys)
        self._rdma: RdmaState | None = None

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys in handshakes from now on, the first one by preference."""
        self._keys = list(keys)
        if self._node is not None:
            self._node.set_keys(self._keys)

    def open(self) -> None:
        """Start the native side now instead of with the first call, because opening RDMA devices takes a while.

        Raises SettingsError when RDMA is required and does not work.
        """
        super().open()

    def _made(self) -> TransportNode:
        node, self._rdma = start_rdma(self.settings.rdma, self._make)
        return node

    def _make(self, rdma: bool) -> TransportNode:
        settings = self.settings
        return TransportNode(
            settings.name[:MAX_NAME],
            machine(),
            self._keys,
            pool_bytes=settings.pool_bytes,
            socket_directory=settings.socket_directory,
            rdma=rdma,
            silence_s=settings.silence_s,
            encryption=settings.encryption,
        )

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> NativeRun:
        """Begin a run over peers that are known; see `swiftlet.transport.native_runs`."""
        run = NativeRun(parts, self.settings, self._failure)
        token = self._next()
        self._calls[token] = run
        try:
            run.begin(self._start(), token, [self._part(part) for part in parts], trace(), marks)
        except BaseException:
            del self._calls[token]
            raise
        return run

    def _part(self, part: RunPart) -> PartParts:
        peer = self.known(part.device)
        if peer is None:
            raise NodeError(f"{part.device.address} is not known yet")
        return run_part(peer, part)

    def rdma_status(self) -> dict[str, object] | None:
        """Return the field `rdma` of the status report; None before the native side has started."""
        return None if self._rdma is None else self._rdma.status()


def client_name(service: str) -> str:
    """Return the name by which servers count a process, the same after a restart."""
    return f"{service}@{os.environ.get('POD_NAME') or socket.gethostname()}"
