"""Servers of devices keep sealed copies of the cluster's keys on them, and serve the copies.

A copy comes from the directory `cluster.sealed_keys_directory`, which Kubernetes mounts, and is stored on every device.
`GET /sealed-keys` answers with the newest copies, without authorisation: nobody can open one without an identity of its
recipients, and the operator accepts only those that it has sealed itself.

Fault model: a device may hang or fail without effect on the others; a copy that can't be written is tried again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from aiohttp import web

from swiftlet.main.background import in_background
from swiftlet.servers.shared.sealed_keys import DIRECTORY, SealedCopy, keep_copy, newest, read_copies
from swiftlet.settings import ClusterSection
from swiftlet.web.logs import get_logger
from swiftlet.web.statusz import STATUS

PATH = "/sealed-keys"

_log = get_logger("sealed-keys")


class SealedKeys:
    """The copies that are known to be on the devices of one server."""

    def __init__(self, offered: Path | None, devices: Mapping[str, Path], suffix_id: str = "") -> None:
        """Copies in the directory `offered` with this suffix are stored on the devices; nothing is read yet."""
        self._directory = offered
        self._devices = devices
        self._suffix_id = suffix_id
        self._held: dict[str, list[SealedCopy]] = {}
        self._problems: dict[str, str] = {}

    def look(self, device: str) -> None:
        """Store a newer copy on a device, and remember which one it has. Blocks."""
        try:
            root = self._devices[device]
            for copy in self._offered():
                keep_copy(root, copy)
            self._held[device] = read_copies(root / DIRECTORY)
            self._problems.pop(device, None)
        except OSError as error:
            problem = error.strerror or str(error)
            if self._problems.get(device) != problem:
                _log.warning("the sealed copies of the keys on a device can't be read", device=device, problem=problem)
            self._problems[device] = problem

    def _offered(self) -> list[SealedCopy]:
        """Return the copies from the cluster that have the suffix of this server."""
        copies = read_copies(self._directory) if self._directory is not None else []
        return [copy for copy in copies if copy.suffix_id == self._suffix_id]

    def generations(self) -> dict[str, int | None]:
        """Return the generation on each device with the suffix in use, None without one; for the status report."""
        return {device: self._generation(device) for device in self._devices}

    def _generation(self, device: str) -> int | None:
        held = (one.generation for one in self._held.get(device, ()) if one.suffix_id == self._suffix_id)
        return max(held, default=None)

    def copies(self) -> list[SealedCopy]:
        """Return the newest copy of each suffix on any device."""
        return newest(copy for copies in self._held.values() for copy in copies)


def use_sealed_keys(app: web.Application, cluster: ClusterSection, devices: Mapping[str, Path]) -> None:
    """Keep copies on the devices and serve them while `app` runs."""
    # The suffix is that of the start, even if its file changes.
    sealed = SealedKeys(cluster.sealed_keys_directory, devices, cluster.suffix_id)
    if cluster.sealed_keys_directory is not None:
        app[STATUS].add("sealedKeys", sealed.generations)
    hand_out(app, sealed)

    async def watch(device: str) -> None:
        while True:
            await asyncio.to_thread(sealed.look, device)
            await asyncio.sleep(cluster.key_check_interval_s)

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for device in devices:
                await stack.enter_async_context(in_background(partial(watch, device)))
            yield

    app.cleanup_ctx.append(watched)


def hand_out(app: web.Application, sealed: SealedKeys) -> None:
    """Answer `GET /sealed-keys` with the newest copies, from memory."""

    async def give(_request: web.Request) -> web.Response:
        copies = {copy.name: base64.b64encode(copy.content).decode() for copy in sealed.copies()}
        return web.json_response({"copies": copies})

    app.router.add_get(PATH, give)
