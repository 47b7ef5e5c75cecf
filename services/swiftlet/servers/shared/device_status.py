"""How full a device is and whether it works, as last seen: checked in the background, reported from memory.

Fault model: a sick disk may answer with an error, or never. A check that failed, or that has not ended for `SILENT_S`,
makes the device `failed` until one succeeds; its last known size stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from swiftlet.errors import SwiftletError
from swiftlet.model import Usage
from swiftlet.web.logs import get_logger

LOOK_S = 5.0
"""Seconds after which a device's state is determined again."""
SILENT_S = 30.0
"""Seconds after which a check that has not ended means that the device does not answer."""

_log = get_logger("devices")


class DeviceStatus:
    """The known state of one device."""

    def __init__(self, name: str, reason: str | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        """Create the status, without a size; `reason` says why the device can't be used at all, None if it can."""
        self.name = name
        self._reason = reason
        self._now_s = now_s
        self._usage: Usage | None = None
        self._looking_since_s: float | None = None

    async def look(self, usage: Callable[[], Awaitable[Usage]]) -> Usage | None:
        """Ask the device how full it is; None when it failed. A failure is logged when it is new."""
        self._looking_since_s = self._now_s()
        try:
            self._usage = await usage()
        except (SwiftletError, OSError) as error:
            self._failed(str(error))
            return None
        except Exception as error:
            _log.exception("a device could not be checked", device=self.name)
            self._failed(repr(error))
            return None
        finally:
            self._looking_since_s = None
        if self._reason is not None:
            _log.info("a device works again", device=self.name)
        self._reason = None
        return self._usage

    def _failed(self, reason: str) -> None:
        if reason != self._reason:
            _log.error("a device has failed", device=self.name, error=reason)
        self._reason = reason

    async def watch(self, look: Callable[[], Awaitable[object]]) -> None:
        """Check the device repeatedly, until cancelled."""
        while True:
            await look()
            await asyncio.sleep(LOOK_S)

    @property
    def reason(self) -> str | None:
        """Why the device does not work; None when it does."""
        if self._looking_since_s is not None and self._now_s() - self._looking_since_s >= SILENT_S:
            return f"it has not answered for {SILENT_S:g} s"
        if self._reason is None and self._usage is None:
            return "it has not been looked at yet"
        return self._reason

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report."""
        reason = self.reason
        fields: dict[str, object] = {
            "capacityBytes": None if self._usage is None else self._usage.total_bytes,
            "freeBytes": None if self._usage is None else self._usage.free_bytes,
            "state": "serving" if reason is None else "failed",
            "reason": reason,
        }
        if self._usage is not None and self._usage.writes_directly is not None:
            fields["writesDirectly"] = self._usage.writes_directly
        return fields
