"""Facts about the machine that a run was made on: what one has to know to compare two results."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import psutil

from swiftlet import __version__


def facts() -> dict[str, Any]:
    """Return what this machine is, and what else it had to do."""
    return {
        "swiftlet": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "processors": os.cpu_count(),
        "processors_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.machine()
