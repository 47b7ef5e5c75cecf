"""What has to be done by the Python that OpenStack Swift is installed for.

    python inside.py rings ETC POWER REPLICAS [PLACE...]    rings of all three kinds of servers at these places
    python inside.py grow ETC PLACE                         a device more in all rings; devices take their parts
    python inside.py primaries ETC                          for each partition the addresses of its devices
    python inside.py load ETC FIRST LAST SIZE REPLICAS IP=DEVICES...     objects, straight to the devices
    python inside.py daemon ETC PROGRAM [ARGUMENT...]       one of Swift's own programs, with the swift.conf in ETC

The last one is needed as the place of swift.conf is fixed: nothing of this machine's own is read or written.
"""

import hashlib
import json
import os
import runpy
import sys
import time

from swift.common import utils  # type: ignore[import-not-found]


def rings(etc: str, power: str, replicas: str, *places: str) -> None:
    """Ring files, the same for all kinds but for the ports.

    A place is an address with one device, `d`, or IP/REGION/DEVICE; each is a zone.
    """
    from swift.common.ring import RingBuilder  # type: ignore[import-not-found]

    for name, port in (("object", 6200), ("container", 6201), ("account", 6202)):
        builder = RingBuilder(int(power), int(replicas), 0)
        for number, place in enumerate(places):
            address, region, device = place.split("/") if "/" in place else (place, "1", "d")
            at = {"region": int(region), "zone": number, "ip": address, "port": port, "device": device}
            builder.add_dev({**at, "weight": 1.0})
        _publish(builder, etc, name)


def _publish(builder: object, etc: str, name: str) -> None:
    builder.rebalance(seed=7)  # type: ignore[attr-defined]
    builder.save(os.path.join(etc, f"{name}.builder"))  # type: ignore[attr-defined]
    builder.get_ring().save(os.path.join(etc, f"{name}.ring.gz"))  # type: ignore[attr-defined]


def grow(etc: str, address: str) -> None:
    """Add a device as large as the others, at an address in a zone of its own, to all rings."""
    from swift.common.ring import RingBuilder

    for name, port in (("object", 6200), ("container", 6201), ("account", 6202)):
        builder = RingBuilder.load(os.path.join(etc, f"{name}.builder"))
        at = {"region": 1, "zone": len(builder.devs), "ip": address, "port": port, "device": "d"}
        builder.add_dev({**at, "weight": 1.0})
        _publish(builder, etc, name)


def primaries(etc: str) -> None:
    """Print, for each ring, a list of addresses for each partition, as JSON."""
    from swift.common.ring import Ring

    places = {}
    for name in ("object", "container", "account"):
        ring = Ring(etc, ring_name=name)
        places[name] = [[node["ip"] for node in ring.get_part_nodes(part)] for part in range(ring.partition_count)]
    print(json.dumps(places))


def load(etc: str, first: str, last: str, size: str, replicas: str, *places: str) -> None:
    """Objects `first` to `last` (not included) on their first `replicas` devices, as an object server stores them."""
    import logging

    from swift.common.ring import Ring
    from swift.common.storage_policy import POLICIES  # type: ignore[import-not-found]
    from swift.common.utils import Timestamp  # type: ignore[import-not-found]
    from swift.obj.diskfile import DiskFileRouter  # type: ignore[import-not-found]

    logger = utils.get_logger({}, "load")
    logging.disable(logging.INFO)
    ring = Ring(etc, ring_name="object")
    managers = {}
    for place in places:
        address, _, devices = place.partition("=")
        conf = {"devices": devices, "mount_check": "false", "disable_fallocate": "true"}
        managers[address] = DiskFileRouter(conf, logger)[POLICIES.default]
    body = b"x" * int(size)
    etag = hashlib.md5(body).hexdigest()
    for number in range(int(first), int(last)):
        name = str(number)
        partition, nodes = ring.get_nodes("a", "c", name)
        timestamp = Timestamp(time.time() - 60)
        for node in nodes[: int(replicas)]:
            file = managers[node["ip"]].get_diskfile("d", partition, "a", "c", name, POLICIES.default)
            with file.create(size=len(body)) as writer:
                writer.write(body)
                writer.put(
                    {
                        "X-Timestamp": timestamp.internal,
                        "Content-Type": "text/plain",
                        "Content-Length": str(len(body)),
                        "ETag": etag,
                    }
                )
                writer.commit(timestamp)


def daemon(_etc: str, program: str, *arguments: str) -> None:
    """Become one of Swift's programs."""
    path = os.path.join(os.path.dirname(sys.executable), program)
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    """Do what the first argument names."""
    what, etc, *rest = sys.argv[1:]
    utils.SWIFT_CONF_FILE = os.path.join(etc, "swift.conf")
    utils.validate_configuration()
    if what == "rings":
        rings(etc, *rest)
    elif what == "grow":
        grow(etc, *rest)
    elif what == "primaries":
        primaries(etc)
    elif what == "load":
        load(etc, *rest)
    else:
        daemon(etc, *rest)


if __name__ == "__main__":
    main()
