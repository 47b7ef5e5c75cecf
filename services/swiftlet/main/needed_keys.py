"""Whether a service can start with the keys that are there; imports nothing that a start without them would not need.

This matters only where `cluster.sealed_keys_directory` is set; elsewhere a missing key file ends the service at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from swiftlet.servers.shared.sealed_keys import DIRECTORY, read_copies
from swiftlet.settings import ClusterSection, ContainerSection, ObjectSection, ServiceSettings


def device_roots(settings: ServiceSettings) -> dict[str, Path]:
    """Return the directories of the devices that a service owns, by name."""
    section = getattr(settings, settings.service)
    if not isinstance(section, ObjectSection | ContainerSection):
        return {}
    return {name: section.devices_dir / name for name in section.devices}


def reason_to_wait(cluster: ClusterSection, devices: Mapping[str, Path]) -> str:
    """Return why the service can't start yet, "" when it can. Raises SettingsError for an unusable suffix. Blocks."""
    if cluster.sealed_keys_directory is None:
        return ""
    for what, path in (("key_file", cluster.key_file), ("hash_path_suffix_file", cluster.hash_path_suffix_file)):
        if path is not None and not path.exists():
            return f"cluster.{what}: {path} is not there; restore the cluster's keys"
    for name, root in sorted(devices.items()):
        known = _suffixes_on(root)
        if known and cluster.suffix_id not in known:
            return (
                f"device {name} was made with another hash suffix (fingerprint {', '.join(known)}, not "
                f"{cluster.suffix_id}): put the right one into the cluster's keys, or, if the device is to be begun "
                f"anew, empty it with its {DIRECTORY}"
            )
    return ""


def _suffixes_on(root: Path) -> list[str]:
    try:
        return [copy.suffix_id for copy in read_copies(root / DIRECTORY)]
    except OSError:
        # The server of a device that can't be read leaves it out, and logs why.
        return []
