"""Real container servers while a policy is retired: what they count, what they refuse, and the list of containers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import make_mocked_request
from click.testing import CliRunner

from swiftlet.errors import PolicyConflict, SettingsError
from swiftlet.listing.pool import ListingStore
from swiftlet.main.commands import policy_usage
from swiftlet.main.commands.policy_command import policy
from swiftlet.main.commands.policy_usage import find
from swiftlet.main.services import container
from swiftlet.main.tests.test_status_reports import COUNT, KEY, Machine, transports, until
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ObjectRow
from swiftlet.placement.tests.cluster import HASH_PATH
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.servers.containers import policy_routes
from swiftlet.servers.tests.listing_cluster import ListingCluster, http_cluster
from swiftlet.settings import ContainerSettings, ProxySettings
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.http_policies import PolicyContainer

GOLD = {"index": 0, "name": "gold", "default": True}
SILVER = {"index": 1, "name": "silver"}


class Retiring(Machine):
    """Container servers that hear of policies by a file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.write([GOLD, SILVER])

    def write(self, policies: list[dict[str, Any]]) -> None:
        (self.root / "policies.new").write_text(yaml.safe_dump(policies))
        (self.root / "policies.new").replace(self.root / "policies.yaml")

    def _common(self) -> dict[str, Any]:
        common = super()._common()
        common["cluster"]["policies_file"] = str(self.root / "policies.yaml")
        return {"cluster": common["cluster"]}

    async def start_container(self, number: int) -> None:
        directory = self.root / "containers"
        directory.mkdir(exist_ok=True)
        section = {
            "host": "127.0.0.1",
            "port": self.containers[number],
            "devices_dir": directory,
            "devices": [f"d{number}"],
            "reserve_bytes": 0,
            "usage_interval_s": 0.05,
            "deprecated_policy_grace_s": 0.2,
            "account_update_interval_s": 0.05,
        }
        settings = ContainerSettings.model_validate({**self._common(), "container": section})
        await self._serve(container.create_app(settings), self.containers[number])

    def proxy_settings(self) -> ProxySettings:
        return ProxySettings.model_validate(self._common())

    async def put(self, listings: HttpListingTransport, account: str, name: str, index: int, objects: int = 0) -> None:
        ring = self.builders["container"].ring
        partition = ring.partition_of(HASH_PATH(account, name))
        rows = [ObjectRow(f"o{number}", Timestamp.at(2000), 7, "e", "t") for number in range(objects)]
        for device in ring.primaries(partition):
            await listings.put_container(device, partition, account, name, Timestamp.at(1000), {}, None, index)
            await listings.update_rows(device, partition, account, name, rows)

    async def used(self) -> list[dict[str, Any]]:
        """What each server says of silver; nothing of those that have not counted."""
        reports = [(await self.report(port))["policies"] for port in self.containers]
        return [dict(one["used"]["1"]) for one in reports if one is not None and "1" in one["used"]]


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Retiring]:
    made = Retiring(tmp_path)
    for number in range(COUNT):
        await made.start_container(number)
    yield made
    await made.close()


async def test_servers_count_together_and_refuse_new_containers(machine: Retiring) -> None:
    async with transports() as (_, listings):
        for number in range(5):
            await machine.put(listings, f"AUTH_{number % 2}", f"c{number}", 1, objects=number)
        await machine.put(listings, "AUTH_0", "gold", 0, objects=9)
        machine.write([GOLD, {**SILVER, "deprecated": True}])

        async def counted() -> bool:
            used = await machine.used()
            sums = [sum(one[name] for one in used) for name in ("containers", "objects", "accounts", "copies")]
            return sums == [5, 10, 2, 15]

        await until(counted)
        assert {name for one in await machine.used() for name in one["largest"]} == {"AUTH_0", "AUTH_1"}

        tries = itertools.count()

        async def refused() -> bool:
            try:
                await machine.put(listings, "AUTH_0", f"late{next(tries)}", 1)
            except PolicyConflict:
                return True
            return False

        await until(refused)
        assert all(one["emptySince"] is None for one in await machine.used() if one["copies"])
        machine.write([GOLD])

        async def forgotten() -> bool:
            return await machine.used() == []

        await until(forgotten)


async def test_all_containers_are_listed_once_and_page_by_page(
    machine: Retiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_routes, "LOOKED_AT", 2)
    async with transports() as (_, listings):
        for number in range(7):
            await machine.put(listings, "AUTH_a", f"c{number}", 1, objects=number)
            await machine.put(listings, "AUTH_a", f"gold{number}", 0)
        await machine.put(listings, ".expiring", "1800000000", 1)
    whole = await find(machine.proxy_settings(), "Silver", None, 100)
    assert (len(whole.containers), whole.more, whole.unheard) == (7, None, {})
    assert {one.name.container: one.objects for one in whole.containers} == {f"c{n}": n for n in range(7)}
    pages, after = [], None
    while True:
        page = await find(machine.proxy_settings(), "silver", after, 3)
        pages.append(len(page.containers))
        if page.more is None:
            break
        after = page.more
    assert pages == [3, 3, 1]


@pytest.mark.parametrize("phase", Phase)
async def test_a_container_that_moves_uses_both_policies_until_it_is_settled(machine: Retiring, phase: Phase) -> None:
    created = Timestamp.at(1000)
    async with transports() as (_, listings):
        await machine.put(listings, "AUTH_a", "c", 0, objects=2)
        partition = machine.builders["container"].ring.partition_of(HASH_PATH("AUTH_a", "c"))
        for number, one in enumerate(Phase, 3000):
            move = PolicyMove(0, 1, one, Timestamp.at(number), created)
            for device in machine.builders["container"].ring.primaries(partition):
                stamp = Timestamp.at(number)
                await listings.post_container(device, partition, "AUTH_a", "c", stamp, {ITEM: move.text()})
                info = await listings.container_info(device, partition, "AUTH_a", "c")
                assert (info.move, info.policy) == (move, move.policy)
            if one is phase:
                break
        other = replace(move, phase=Phase.SETTLED if phase is Phase.ANNOUNCED else Phase.ANNOUNCED)
        with pytest.raises(PolicyConflict, match="after which it can't be"):
            await listings.post_container(device, partition, "AUTH_a", "c", Timestamp.at(4000), {ITEM: other.text()})
    used = {
        (name, moved): [one.move for one in (await find(machine.proxy_settings(), name, None, 9, moved)).containers]
        for name in ("gold", "silver")
        for moved in (False, True)
    }
    before = [] if phase is Phase.SETTLED else [move]
    assert used == {
        ("gold", False): before,
        ("gold", True): [move],
        ("silver", False): [move],
        ("silver", True): [move],
    }


async def test_servers_that_are_away_are_named_and_their_containers_have_other_replicas(machine: Retiring) -> None:
    async with transports() as (_, listings):
        for number in range(6):
            await machine.put(listings, "AUTH_a", f"c{number}", 1)
    await machine.stop(machine.containers[0])
    await machine.stop(machine.containers[1])
    usage = await find(machine.proxy_settings(), "silver", None, 100)
    assert len(usage.containers) == 6
    assert (set(usage.unheard), usage.is_whole) == ({"pod-0/d0", "pod-1/d1"}, True)
    await machine.stop(machine.containers[2])
    assert not (await find(machine.proxy_settings(), "silver", None, 100)).is_whole


async def test_an_unknown_policy_is_named(machine: Retiring) -> None:
    with pytest.raises(SettingsError, match="there is no policy tin; the policies are: gold, silver"):
        await find(machine.proxy_settings(), "tin", None, 1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListingCluster]:
    async with http_cluster(tmp_path, 1) as made:
        yield made


async def test_deleted_containers_are_passed_over(cluster: ListingCluster) -> None:
    (device,), transport = cluster.devices, cluster.transport
    assert isinstance(transport, HttpListingTransport)
    for name in ("one", "two", "three"):
        await transport.put_container(device, 1, "AUTH_a", name, Timestamp(5), {}, None, 3)
    await transport.delete_container(device, 1, "AUTH_a", "two", Timestamp(6))
    page = await transport.policy_containers(device, 3, None)
    assert {one.name for one in page.containers} == {DatabaseName("AUTH_a", "one"), DatabaseName("AUTH_a", "three")}
    assert not page.more
    assert not (await transport.policy_containers(device, 3, page.upto)).containers


async def test_a_database_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    before = ListingStore(tmp_path / "d0", HASH_PATH)
    for name in ("one", "two"):
        await before.put_container(1, "AUTH_a", name, Timestamp(5), {}, None, 3)
    (file,) = before.root.rglob(f"{before.id_of(1, DatabaseName('AUTH_a', 'one')).digest.hex()}*.db")
    await before.close()
    file.write_bytes(b"no database")
    store = ListingStore(tmp_path / "d0", HASH_PATH)
    request = make_mocked_request("POST", "/", match_info={"device": "d0"})
    answer = await policy_routes.PolicyRoutes({"d0": store}).policy_containers(request, {"policy": 3})
    found = answer["containers"]
    assert isinstance(found, list)
    assert [one["container"] for one in found] == ["two"]
    await store.close()


def test_the_command_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.yaml"
    cluster = {"key": KEY, "hash_path_suffix": "suffix", "rings": str(tmp_path)}
    settings.write_text(yaml.safe_dump({"cluster": cluster, "policies": [GOLD, SILVER]}))
    usage = policy_usage.Usage(replicas=3, unheard={"pod-0/d0": "refused"})
    id = DatabaseId(DatabaseKind.CONTAINER, 5, bytes(16))
    for name in ("c", "\0versions\0c"):
        usage.containers.append(PolicyContainer(id, DatabaseName("AUTH_a", name), 2, 30))
    usage.more = id

    async def found(*_: object) -> policy_usage.Usage:
        return usage

    monkeypatch.setattr("swiftlet.main.commands.policy_command.find", found)
    run = CliRunner().invoke
    plain = run(policy, ["usage", "silver", "--config", str(settings)])
    assert plain.exit_code == 0
    assert plain.stdout == "AUTH_a\tc\t2\t30\nAUTH_a\tversions of c\t2\t30\n"
    assert f"there are more containers; --after {id} lists them" in plain.stderr
    assert "device pod-0/d0 could not be asked: refused" in plain.stderr
    said = json.loads(run(policy, ["usage", "silver", "--config", str(settings), "--json"]).stdout)
    assert said["containers"][0] == {"account": "AUTH_a", "container": "c", "objects": 2, "bytes": 30}
    assert (said["more"], said["whole"]) == (str(id), True)
    usage.unheard = dict.fromkeys("abc", "refused")
    assert run(policy, ["usage", "silver", "--config", str(settings)]).exit_code == 1
    assert run(policy, ["usage", "silver", "--config", str(settings), "--after", "nonsense"]).exit_code == 2
