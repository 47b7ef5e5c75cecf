"""The quota file of a process: checked every few seconds; the last good one stays in force."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import Counter

from swiftlet.main.reloading import keep_current
from swiftlet.quota import QuotaFile
from swiftlet.settings import QuotaSection
from swiftlet.web.statusz import STATUS

FAILURES = Counter("swiftlet_quotas_load_failures_total", "Changed quota files that could not be used.")


def use_quotas(app: web.Application, section: QuotaSection) -> QuotaFile:
    """Return the limits of `app`, kept up to date while it runs. Raises SettingsError when the file can't be used at
    all.
    """
    quotas = QuotaFile(section.file)
    app[STATUS].add("quotas", lambda: quotas.version)
    if section.file is not None:
        keep_current(app, "quota file", quotas.reload, FAILURES, section.check_interval_s)
    return quotas
