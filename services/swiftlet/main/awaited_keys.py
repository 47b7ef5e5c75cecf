"""A service without its keys waits for them, and serves the sealed copies on its devices meanwhile.

So a cluster that has lost both Secrets with its keys gets them back from its volumes: pods start without keys, the
operator asks them for the copies, opens one, and makes the Secret again. A server with devices also waits while its
hash suffix differs from that of the copies on a device: with another suffix it would find no object there, and nobody
would find what it wrote.

While it waits a service is alive but not ready, and has no status report, so nobody concludes that it has no rings.
Once the keys are there the program starts anew in the same process, as if it had never waited.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import uvloop
from aiohttp import web

from swiftlet.errors import SettingsError
from swiftlet.main.background import in_background
from swiftlet.main.needed_keys import device_roots, reason_to_wait
from swiftlet.main.sealed_keys import SealedKeys, hand_out
from swiftlet.settings import ServiceSettings
from swiftlet.web.app import create_base_app
from swiftlet.web.health import READINESS
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

DRAIN_S = 1.0

_log = get_logger("keys")


def await_keys(settings: ServiceSettings) -> int:
    """Wait until the keys are there, then start the program anew; return the exit code when asked to end before."""
    if uvloop.run(_wait(settings)):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program
    return 0


async def _wait(settings: ServiceSettings) -> bool:
    """Serve the sealed copies; return whether the keys are there."""
    stop, came = StopRequest(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.again)
    section = getattr(settings, settings.service)
    app = waiting_app(settings, stop, came)
    await serve(app, [listen(section.host, section.port)], ServeOptions(drain_s=DRAIN_S), stop)
    return came.is_set()


def waiting_app(settings: ServiceSettings, stop: StopRequest, came: asyncio.Event) -> web.Application:
    """Return the application that serves while keys are awaited; once they are there it sets `came` and ends itself."""
    cluster, devices = settings.cluster, device_roots(settings)
    # Only pages for clients and peers are served: a status report would say that there are no rings.
    app = create_base_app(settings.service, trust_request_ids=True, managed_apart=True)
    sealed = SealedKeys(None, devices)
    hand_out(app, sealed)
    reason = "the service is looking for them"
    app[READINESS].add("keys", lambda: reason)

    async def look() -> None:
        nonlocal reason
        while found := await asyncio.to_thread(_reason, settings):
            if found != reason:
                _log.error("the service waits for the cluster's keys", reason=found)
            reason = found
            for device in devices:
                await asyncio.to_thread(sealed.look, device)
            await asyncio.sleep(cluster.key_check_interval_s)
        came.set()
        if not stop.once.is_set():
            stop.again()

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(look):
            yield

    app.cleanup_ctx.append(watched)
    return app


def _reason(settings: ServiceSettings) -> str:
    # The start itself reports what is wrong with an existing file.
    with suppress(SettingsError):
        return reason_to_wait(settings.cluster, device_roots(settings))
    return ""
