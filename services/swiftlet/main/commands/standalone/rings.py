"""The rings of a local store: made at the first start, and updated with the services' ports at each start.

Devices are identified by their names; a new port moves no data.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from swiftlet.errors import SettingsError
from swiftlet.main.commands.standalone.plan import HOST, REPLICAS, DevicePlan, Plan
from swiftlet.main.ring_names import ACCOUNT, CONTAINER, object_ring
from swiftlet.ring import RingBuilder, RingError
from swiftlet.ring.codec import load_builder, save, save_builder

PART_POWER = 7
"""About a hundred partitions for each of four devices: enough to spread data, few enough for short rounds."""
_REGION = "local"


def write_rings(plan: Plan) -> None:
    """Write all ring and builder files of the plan; correct ones are left alone."""
    directory = plan.layout.rings
    _write(directory, ACCOUNT, plan.container_devices, REPLICAS)
    _write(directory, CONTAINER, plan.container_devices, REPLICAS)
    for policy in plan.policies:
        _write(directory, object_ring(policy.index), plan.object_devices, policy.replicas)


def _write(directory: Path, name: str, devices: Sequence[DevicePlan], replicas: int) -> None:
    builder_file, ring_file = directory / f"{name}.builder", directory / f"{name}.ring"
    try:
        known = builder_file.exists()
        builder = load_builder(builder_file) if known else RingBuilder(PART_POWER, replicas, min_part_hours=1)
        if point_at(builder, devices) or not builder.has_ring:
            builder.rebalance(int(time.time() // 3600))
            save_builder(builder, builder_file)
            save(builder.ring, ring_file)
        elif not ring_file.exists():
            save(builder.ring, ring_file)
    except RingError as error:
        raise SettingsError(f"{builder_file}: {error}") from error
    except OSError as error:
        raise SettingsError(f"{error.filename or directory}: {error.strerror}") from error


def point_at(builder: RingBuilder, devices: Sequence[DevicePlan]) -> bool:
    """Add the devices that the builder lacks and give all of them their ports; return whether anything changed."""
    known = {device.name: device for device in builder.devices if device is not None}
    changed = False
    for planned in devices:
        device = known.get(planned.name)
        if device is None:
            builder.add_device(
                name=planned.name,
                host=HOST,
                port=planned.port,
                device=planned.name,
                region=_REGION,
                zone=planned.zone,
                node=f"node-{planned.name}",
                weight=100.0,
            )
        elif (device.host, device.port) != (HOST, planned.port):
            builder.update_device(device.id, host=HOST, port=planned.port)
        else:
            continue
        changed = True
    return changed
