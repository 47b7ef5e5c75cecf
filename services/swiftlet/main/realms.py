"""The realms file of a process: checked every few seconds; the last good one stays in force."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import Counter

from swiftlet.container_sync.realms import RealmsFile
from swiftlet.main.reloading import keep_current
from swiftlet.settings.container_sync import RealmsSection

FAILURES = Counter("swiftlet_realms_load_failures_total", "Changed realms files that could not be used.")


def use_realms(app: web.Application, section: RealmsSection) -> RealmsFile:
    """Return the realms of `app`, kept up to date while it runs. Raises SettingsError when the file can't be used at
    all.
    """
    realms = RealmsFile(section.file, section.current)
    if realms.enabled:
        keep_current(app, "realms file", realms.reload, FAILURES, section.check_interval_s)
    return realms
