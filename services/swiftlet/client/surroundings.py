"""Finds options in a program's surroundings: the environment, and a mounted Secret."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swiftlet.client.credentials import DIRECTORY_VARIABLE, MOUNTED_AT
from swiftlet.client.options import Options

METADATA_VARIABLE = "SWIFTLET_METADATA_URL"
PLACE_VARIABLES = {
    "region": "SWIFTLET_REGION",
    "zone": "SWIFTLET_ZONE",
    "socket_directory": "SWIFTLET_SOCKET_DIRECTORY",
}
_ENTRY = "metadataUrl"


def find_options(environment: Mapping[str, str] | None = None, mounted_at: str = MOUNTED_AT, **given: Any) -> Options:
    """Return options; `metadata_url`, if it is not given, as SWIFTLET_METADATA_URL or the mounted Secret says;
    `region`, `zone` and `socket_directory` as SWIFTLET_REGION, SWIFTLET_ZONE and SWIFTLET_SOCKET_DIRECTORY say.

    The Secret's URL counts only where the native package is installed: who mounts a Secret need not know of it.
    """
    found = os.environ if environment is None else environment
    url = found.get(METADATA_VARIABLE) or _mounted(found.get(DIRECTORY_VARIABLE) or mounted_at)
    place = {name: found.get(variable) or None for name, variable in PLACE_VARIABLES.items()}
    return Options(**{"metadata_url": url, **place, **given})


def _mounted(directory: str) -> str | None:
    if importlib.util.find_spec("swiftlet_native") is None:
        return None
    try:
        return Path(directory, _ENTRY).read_text(encoding="utf-8").strip() or None
    except OSError:
        # Stores without direct access have no such entry.
        return None
