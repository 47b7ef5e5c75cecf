"""From a service's name and settings file to a running service; imports are made late so that starting is quick."""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from pathlib import Path

from swiftlet.main.file_limit import allow_many_files
from swiftlet.main.needed_keys import device_roots, reason_to_wait
from swiftlet.settings import SERVICES, ServiceSettings, load_settings
from swiftlet.web.logs import configure_logging
from swiftlet.web.parent import end_with_parent
from swiftlet.web.shared_metrics import share_metrics


def launch(service: str, config: Path | None, parent_pid: int | None = None) -> int:
    """Run a service until it is asked to end; return its exit code. Raises SettingsError when its settings can't be
    used.
    """
    if parent_pid is not None:
        end_with_parent(parent_pid)
    allow_many_files()
    settings = load_settings(SERVICES[service], config)
    configure_logging(service, settings.log.level, settings.log.format)
    if reason_to_wait(settings.cluster, device_roots(settings)):
        waited = importlib.import_module("swiftlet.main.awaited_keys").await_keys(settings)
        assert isinstance(waited, int)
        return waited
    # The services import prometheus-client, which decides at that moment whether processes share their metrics.
    with share_metrics() if _workers(settings) > 1 else nullcontext():
        code = importlib.import_module(f"swiftlet.main.services.{service}").run(settings)
    assert isinstance(code, int)
    return code


def _workers(settings: ServiceSettings) -> int:
    section = getattr(settings, settings.service)
    workers = getattr(section, "workers", 1)
    assert isinstance(workers, int)
    return workers
