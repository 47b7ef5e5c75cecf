"""Real object servers and replicators of a policy with erasure coding: what a server missed while it was down is made
there by its replicator.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.errors import NodeError, SettingsError
from swiftlet.main.tests.test_status_reports import COUNT, Machine, transports, until
from swiftlet.model import ObjectKey
from swiftlet.names import Path as Name
from swiftlet.placement.tests.cluster import HASH_PATH, footer_of, record_of
from swiftlet.ring.model import Coding
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_coded_repair import NativeCodedRepair

CODING = Coding(2, 1, 1024)


class Coded(Machine):
    """A machine with a second policy, 2+1."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.builders["object-1"] = self._builder(self.objects)
        self.publish()

    def _common(self) -> dict[str, Any]:
        common = super()._common()
        coding = {"data": CODING.data, "parity": CODING.parity, "cell_bytes": CODING.cell_bytes}
        policies = [*common["policies"], {"name": "coded", "index": 1, "coding": coding}]
        return {**common, "policies": policies}

    def places(self, name: Name) -> CodedPlaces:
        """Where an object's fragments are, without spares."""
        ring, digest = self.builders["object-1"].ring, HASH_PATH.of(name)
        key = ObjectKey(1, ring.partition_of(digest), digest)
        return CodedPlaces.in_ring(key, CODING, ring)


async def test_the_replicator_of_a_server_that_was_down_makes_its_fragments(tmp_path: Path) -> None:
    machine = Coded(tmp_path)
    try:
        places = machine.places(Name("AUTH_test", "c", "o"))
        home = int(places.at[1].device.removeprefix("d"))
        for number in range(COUNT):
            await machine.start_object(number)
        async with transports() as (objects, _):
            body = bytes(range(256)) * 40
            record = record_of(Name("AUTH_test", "c", "o"), Timestamp.at(time.time() - 99))
            stream = await objects.coded.open_coded_put(places, record, len(body), [])
            await stream.write(body)
            assert (await stream.commit(footer_of(body).etag)).verdict == "acknowledged"
            # 2+1 takes all places to be stored: the device is lost afterwards, and comes back empty.
            await machine.stop(machine.objects[home])
            shutil.rmtree(tmp_path / "objects" / f"d{home}")
            await machine.start_object(home)
            await machine.start_replicator(home)
            repair = NativeCodedRepair(objects.coded)

            async def is_back() -> bool:
                try:
                    return await repair.show(places.at[1], places.key_at(1)) is not None
                except NodeError:
                    return False

            await until(is_back)

            async def is_clean() -> bool:
                return bool(((await machine.report(machine.replicators[home]))["repairs"] or {}).get("clean"))

            await until(is_clean)
            others = [int(places.at[place].device.removeprefix("d")) for place in (0, 2)]
            await machine.stop(machine.objects[others[0]])
            read = await objects.coded.get_coded(places, [1, 2], 0, None)
            assert b"".join([chunk async for chunk in read.chunks()]) == body
            await read.close()
    finally:
        await machine.close()


async def test_a_server_does_not_start_with_another_coding_than_its_objects_have(tmp_path: Path) -> None:
    machine = Coded(tmp_path)
    common = machine._common
    try:
        places = machine.places(Name("AUTH_test", "c", "o"))
        for number in range(COUNT):
            await machine.start_object(number)
        async with transports() as (objects, _):
            record = record_of(Name("AUTH_test", "c", "o"), Timestamp.at(time.time()))
            stream = await objects.coded.open_coded_put(places, record, 4, [])
            await stream.write(b"body")
            assert (await stream.commit(footer_of(b"body").etag)).verdict == "acknowledged"
        home = int(places.at[1].device.removeprefix("d"))
        await machine.stop(machine.objects[home])

        def with_coding(coding: dict[str, int] | None) -> Callable[[], dict[str, Any]]:
            policies = [policy | ({"coding": coding} if policy["index"] else {}) for policy in common()["policies"]]
            return lambda: {**common(), "policies": policies}

        refused = r"coding of policy coded: device d\d has objects with 2\+1 fragments"
        for coding in ({"data": 2, "parity": 2}, {"data": 2, "parity": 1, "cell_bytes": 2048}, None):
            machine._common = with_coding(coding)  # type: ignore[method-assign]
            with pytest.raises(SettingsError, match=refused):
                await machine.start_object(home)
        machine._common = common  # type: ignore[method-assign]
        await machine.start_object(home)
    finally:
        await machine.close()
