"""Which store is chosen for a load, and its custom resources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swiftlet.advice import arrangements
from swiftlet.advice.arrangements import kept_otherwise, plans
from swiftlet.advice.costs import shipped
from swiftlet.advice.errors import AdviceError
from swiftlet.advice.hardware import Disk, Hardware, Node
from swiftlet.advice.load import Load
from swiftlet.advice.manifests import manifests, quantity
from swiftlet.advice.plan import Coding, Plan, Rules
from swiftlet.advice.sizing import MAX_PODS, least, part_power
from swiftlet.advice.tests.cases import DENSE, GB, HDD, MB, PLAIN, SSD, STRONG, TB, coded_costs, costs, hardware, load
from swiftlet.advice.text import plan_lines


def best(asked: Load, given: Hardware, rules: Rules | None = None) -> Plan:
    return plans(asked, given, costs(), rules or Rules())[0]


@pytest.mark.parametrize(("wanted", "step"), [(7, 1), (7, 3), (3, 3), (100, 4), (1000, 1)])
def test_the_least_number_is_found(wanted: int, step: int) -> None:
    found = least(lambda count: count >= wanted, 3, step, MAX_PODS)
    assert found is not None
    assert wanted <= found < wanted + step
    assert (found - 3) % step == 0


def test_no_number_is_no_number() -> None:
    assert least(lambda _: False, 3, 3, MAX_PODS) is None


def test_an_archive_is_as_large_as_its_data() -> None:
    plan = best(load(100 * MB, 1000 * TB, read=1), hardware(DENSE, PLAIN))
    assert plan.arrangement == "sumo"
    (pool,) = plan.pools
    assert pool.bytes * 0.8 >= 3 * 1000 * TB
    # One node less would not do, and one less per zone neither.
    assert (pool.pods - 1) * pool.disks * HDD.size_bytes * 0.8 < 3 * 1000 * TB + 100 * TB
    assert all(use.fits for use in plan.uses)
    assert plan.price == pool.pods * (4000 + pool.disks * 200) + plan.databases.pods * 100
    assert plan.price_per_usable_tb == pytest.approx(plan.price / (plan.usable_bytes / TB))


def test_an_archive_with_erasure_coding_takes_half_of_the_disks() -> None:
    kept = best(load(100 * MB, 1000 * TB, read=1), hardware(DENSE), Rules(coding=Coding(4, 2)))
    whole = best(load(100 * MB, 1000 * TB, read=1), hardware(DENSE))
    assert kept.disks / whole.disks == pytest.approx(0.5, abs=0.03)
    assert kept.usable_bytes == pytest.approx(kept.pools[0].bytes * 0.8 / 1.5)
    assert kept.price_per_usable_tb is not None
    assert whole.price_per_usable_tb is not None
    assert kept.price_per_usable_tb < whole.price_per_usable_tb * 0.55
    # Four times as much is read to make what a lost node had, which was as much.
    (pool,), lost = kept.pools, 1000 * TB * 1.5 / kept.pools[0].pods
    speed = (pool.pods - 1) * min(DENSE.network_bytes_per_s, pool.disks * HDD.write_bytes_per_s) / 2
    assert kept.restore_s == pytest.approx(lost * 4 / speed, rel=0.01)

    cluster, policy = manifests(kept, "cold")
    assert policy["spec"]["erasureCoding"] == {"data": 4, "parity": 2}
    assert cluster["spec"]["rings"]["replicas"] == 3
    text = "\n".join(plan_lines(kept, []))
    assert "4+2 fragments, 1.5 bytes for each byte" in text
    assert "any 2 devices or any 2 nodes lost at a time" in text
    assert "each     PUT writes on 6 devices and waits for 5; GET reads from 4 devices" in text


def test_what_a_fragment_takes_that_is_made_anew_bounds_restoring() -> None:
    known = replace(costs(), coded=coded_costs(rebuild_s=1e-6))
    asked, given = load(100 * MB, 1000 * TB, read=1), hardware(DENSE)
    coding = plans(asked, given, known, Rules(coding=Coding(4, 2)))[0]
    (pool,), lost = coding.pools, 1000 * TB * 1.5 / coding.pools[0].pods
    # Half of the processors of all other nodes.
    assert coding.restore_s == pytest.approx(lost * 1e-6 / ((pool.pods - 1) * DENSE.processors / 2), rel=0.01)
    copies_alone = plans(asked, given, known, Rules())[0]
    assert copies_alone.restore_s == plans(asked, given, costs(), Rules())[0].restore_s


@pytest.mark.parametrize(
    ("coding", "disks", "least"), [((4, 2), 12, 4), ((4, 2), 1, 7), ((10, 4), 2, 8), ((2, 1), 4, 4)]
)
def test_a_coded_store_has_places_for_all_fragments_with_a_pod_away(
    coding: tuple[int, int], disks: int, least: int
) -> None:
    plan = best(load(MB, TB, read=1), hardware(replace(DENSE, most_disks=disks)), Rules(coding=Coding(*coding)))
    (pool,) = plan.pools
    assert pool.pods >= least
    data, parity = coding
    assert (pool.pods - 1) * min(parity, pool.disks) >= data + parity


def test_zones_have_as_many_pods_each() -> None:
    plan = best(load(stored=700 * TB), hardware(DENSE, zones=("a", "b", "c")))
    assert plan.pools[0].pods % 3 == plan.databases.pods % 3 == 0
    assert plan.zones == ("a", "b", "c")


def test_more_is_asked_and_more_is_taken() -> None:
    pods = []
    for rate in (10, 1_000, 10_000):
        plan = best(load(MB, read=rate), hardware(DENSE))
        pods.append(plan.nodes)
        assert all(use.fits for use in plan.uses)
    assert pods == sorted(pods)
    assert pods[-1] > pods[0]


def test_what_is_at_its_limit_first_is_there_when_the_load_is_so_many_times_as_much() -> None:
    asked = load(MB, read=2_000)
    plan = best(asked, hardware(DENSE))
    times = plan.headroom
    assert times > 1
    more = replace(asked, per_second={"read": 2_000 * times * 1.05})
    grown = best(more, hardware(DENSE))
    assert (grown.nodes, grown.disks) > (plan.nodes, plan.disks)


def test_machines_with_a_thin_network_have_proxies_apart_or_on_strong_ones() -> None:
    thin = Node("thin", 8, 64 * 2**30, 100 * MB, HDD, 8, price=1000)
    asked = load(10 * MB, 200 * TB, create=40, read=40)
    apart = plans(asked, hardware(thin, PLAIN), costs(), Rules())
    assert (apart[0].arrangement, apart[0].proxies.node) == ("apart", PLAIN)
    disk = replace(SSD, size_bytes=4 * TB)
    mixed = plans(asked, hardware(thin, replace(STRONG, disk=disk, price=5000)), costs(), Rules())[0]
    assert mixed.arrangement == "mixed"
    assert [pool.has_proxy for pool in mixed.pools] == [True, False]
    assert sum(pool.share for pool in mixed.pools) == pytest.approx(1)
    assert mixed.proxies.pods == mixed.pools[0].pods


def test_sumo_nodes_get_more_weight_where_the_others_have_room_to_spare() -> None:
    # Many slow disks are there for their reads, and their space stays empty.
    slow = Disk("slow", 20 * TB, 100 * MB, 100 * MB, 20, 0.01, price=100)
    thin = Node("thin", 8, 64 * 2**30, 50 * MB, slow, 4, price=500)
    fast = replace(STRONG, disk=replace(SSD, size_bytes=2 * TB))
    found = plans(load(MB, 60 * TB, read=400), hardware(thin, fast), costs(), Rules())
    mixed = next(plan for plan in found if plan.arrangement == "mixed")
    sumo = mixed.pools[0]
    assert sumo.weight is not None
    assert sumo.weight > sumo.disk.size_bytes / 2**30
    # Neither is fuller than it may be.
    assert all(use.share <= use.limit for use in mixed.uses if use.what == "space")
    (cluster, _) = manifests(mixed, "s")
    assert cluster["spec"]["pools"][0]["weight"] == sumo.weight
    assert "weight" not in cluster["spec"]["pools"][1]


def test_databases_have_the_cheapest_disks_that_follow() -> None:
    cheap = replace(HDD, price=10)
    few = best(load(MB, create=1), hardware(DENSE, database_disks=(SSD, cheap)))
    many = best(load(1000, 10 * TB, create=2_000), hardware(DENSE, database_disks=(SSD, cheap)))
    assert (few.databases.disk, many.databases.disk) == (cheap, SSD)


@pytest.mark.parametrize(
    ("asked", "given", "said"),
    [
        (load(GB, 1e18), hardware(DENSE), "hardware.nodes.dense: 1000 of them would be too few, for their space"),
        (load(GB, read=1e6), hardware(DENSE), "hardware.nodes.dense: 1000 of them would be too few, for their network"),
        (load(1000, create=1e8), hardware(DENSE), "hardware.databases: no number of container servers will do"),
        (
            load(MB, read=1000),
            hardware(DENSE, balancer_bytes_per_s=GB),
            "hardware.balancer_bytes_per_s: 1,000 MB/s would be 100% busy with clients' bytes, and 70% is the limit",
        ),
        (load(), hardware(DENSE, replace(PLAIN, price=None)), "hardware.nodes.plain.price: give prices of all"),
        (load(), hardware(PLAIN), "hardware.nodes: none of them has disks"),
    ],
)
def test_what_can_not_be_had_is_refused_by_field(asked: Load, given: Hardware, said: str) -> None:
    with pytest.raises(AdviceError) as refused:
        best(asked, given)
    assert said in str(refused.value)


def test_without_prices_the_fewest_machines_win() -> None:
    large, small = replace(DENSE, price=None), replace(DENSE, name="small", most_disks=2, price=None)
    given = hardware(
        replace(small, disk=replace(HDD, price=None)),
        replace(large, disk=replace(HDD, price=None)),
        database_disks=(replace(SSD, price=None),),
    )
    plan = best(load(stored=1000 * TB), given)
    assert (plan.pools[0].node.name, plan.price, plan.price_per_usable_tb) == ("dense", None, None)


@pytest.mark.parametrize(
    ("devices", "growth", "power"), [(4, 1, 8), (2000, 1, 17), (100, 10, 16), (100_000, 100, 22), (1, 1, 6)]
)
def test_partitions_last_for_the_whole_life_of_a_store(devices: int, growth: float, power: int) -> None:
    assert part_power(devices, growth, 3) == power


def test_a_manifest_has_what_was_decided() -> None:
    rules = Rules(etag="xxh3", aggregate_below=4 << 20, is_outside=True)
    plan = best(load(MB, read=100), hardware(replace(DENSE, labels={"kind": "dense"}), zones=("a", "b", "c")), rules)
    cluster, policy = manifests(plan, "photos", "media")
    spec = cluster["spec"]
    assert cluster["metadata"] == {"name": "photos", "namespace": "media"}
    assert spec["rings"] == {"partPower": plan.part_power, "replicas": 3}
    (pool,) = spec["pools"]
    assert pool["nodeSelector"] == {"kind": "dense"}
    assert pool["storage"] == {"className": "slow", "size": "9313Gi"}
    assert pool["roles"] == ["object", "proxy"]
    assert spec["proxy"]["replicas"] == 0
    assert spec["proxy"]["service"] == {"type": "LoadBalancer"}
    assert policy["spec"]["clusterRef"] == {"name": "photos"}
    assert (policy["spec"]["etag"], policy["spec"]["aggregateBelow"]) == ("xxh3", "4Mi")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1, "1"), (1024, "1Ki"), (2**20, "1Mi"), (10**13, "9313Gi"), (3 * 2**30, "3Gi")]
)
def test_quantities(size: int, text: str) -> None:
    assert quantity(size) == text


def test_the_text_names_what_comes_first_and_other_ways() -> None:
    chosen, *others = plans(load(MB, read=100), hardware(DENSE, PLAIN), shipped(), Rules())
    text = "\n".join(plan_lines(chosen, others))
    assert "proxy in every pod that stores objects (sumo nodes)" in text
    assert "would be at the limit first" in text
    assert "apart: " in text


def test_copies_are_compared_with_a_coding_and_a_coding_with_copies() -> None:
    asked, given = load(100 * MB, 1000 * TB, read=1), hardware(DENSE)
    told = {
        "With 4+2 fragments in place of 3 copies:": (Rules(), Rules(coding=Coding(4, 2))),
        "With 3 copies in place of 6+3 fragments:": (Rules(coding=Coding(6, 3)), Rules()),
    }
    for line, (rules, other) in told.items():
        chosen, *others = plans(asked, given, costs(), rules)
        otherwise = kept_otherwise(asked, given, costs(), rules)
        assert otherwise is not None
        assert otherwise == best(asked, given, other)
        lines = list(plan_lines(chosen, others, otherwise))
        assert lines[-2] == line
        assert lines[-1].startswith("  sumo: ")


def test_where_objects_cannot_be_kept_otherwise_nothing_is_said_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> list[Plan]:
        raise AdviceError("nothing will do")

    asked, given = load(MB, TB, read=1), hardware(DENSE)
    chosen = best(asked, given)
    monkeypatch.setattr(arrangements, "plans", none)
    otherwise = kept_otherwise(asked, given, costs(), Rules())
    assert otherwise is None
    assert not any(line.startswith("With ") for line in plan_lines(chosen, [], otherwise))
