"""Sizes, unit costs and what a load takes by them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from swiftlet.advice.costs import Curve, document, read_costs, shipped
from swiftlet.advice.demand import demand, device_busy, folds, mean_cost
from swiftlet.advice.errors import AdviceError
from swiftlet.advice.redundancy import Redundancy, coded, copies
from swiftlet.advice.sizes import Piece, fixed, of_pieces
from swiftlet.advice.tests.cases import HDD, MB, coded_costs, costs, load


@pytest.mark.parametrize(
    "piece",
    [
        (1.0, 5, 5, None, 0.0),
        (1.0, 1_000, 100_000, None, 0.0),
        (1.0, 0, 5 << 30, 20_000, 0.0),
        (1.0, 0, 5 << 30, 20_000, 1.0),
        (1.0, 1_000, 50_000_000, 20_000, 2.0),
        (1.0, 1_000, 100_000, 20_000, 3.0),
    ],
)
def test_means_are_those_of_the_distribution(piece: Piece) -> None:
    _, least, most, median, sigma = piece
    source = random.Random(1)

    def drawn() -> float:
        if median is None:
            return source.uniform(least, most)
        return min(max(median * math.exp(sigma * source.gauss(0, 1)), least), most)

    found = of_pieces([piece])
    assert math.isclose(sum(share for share, _ in found.shares), 1.0)
    assert found.mean == pytest.approx(fmean(drawn() for _ in range(200_000)), rel=0.03)


def test_pieces_count_by_their_weights() -> None:
    found = of_pieces([(3, 10, 10, None, 0.0), (1, 50, 50, None, 0.0), (0, 999, 999, None, 0.0)])
    assert (found.mean, found.share_above(10)) == (20, 0.25)


def test_a_curve_is_straight_between_and_beyond_what_was_measured() -> None:
    curve = Curve(((100.0, 1.0), (200.0, 2.0), (300.0, 6.0)))
    assert [curve.at(size) for size in (0, 100, 150, 250, 300, 400)] == [1.0, 1.0, 1.5, 4.0, 6.0, 10.0]
    assert Curve(((5.0, 2.0),)).at(1e9) == 2.0
    assert Curve(((1.0, 3.0), (2.0, 1.0))).at(9) == 0.0
    assert mean_cost(curve, of_pieces([(1, 100, 100, None, 0.0), (1, 300, 300, None, 0.0)])) == 3.5


def test_the_shipped_costs_are_read_and_written_alike() -> None:
    known = shipped()
    assert read_costs(json.dumps(document(known)), "again") == known
    assert known.measured["processor"]
    for curves in known.cpu_s.values():
        assert all(point[1] >= 0 for curve in curves.values() for point in curve.points)
    # More bytes cost more.
    assert known.cpu_s["proxy"]["create"].at(100 * MB) > known.cpu_s["proxy"]["create"].at(MB) > 0


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("version", 2, "version: this release reads 1, the file has 2; measure anew"),
        ("cpu_us", [], "cpu_us: must be an object with fields"),
        ("cpu_us.object", None, "cpu_us.object: must be an object with fields"),
        ("cpu_us.proxy.read", [], "cpu_us.proxy.read: must be a list of 1 to 100 pairs of size and cost"),
        ("cpu_us.proxy.read", [[1]], "cpu_us.proxy.read[0]: must be a pair of size and cost"),
        ("cpu_us.proxy.read", [[1, -1]], "cpu_us.proxy.read[0].cost: must be a number of at least 0, not -1"),
        ("cpu_us.proxy.read", [[2, 1], [1, 1]], "cpu_us.proxy.read: sizes must ascend"),
        ("row_bytes", "many", "row_bytes: must be a number of at least 0, not 'many'"),
        ("memory_bytes", {"proxy": 1}, "memory_bytes: lacks object, container, replicator"),
    ],
)
def test_wrong_costs_are_refused_by_field(field: str, value: Any, said: str) -> None:
    known = document(costs())
    *way, last = field.split(".")
    at = known
    for step in way:
        at = at[step]
    at[last] = value
    with pytest.raises(AdviceError, match=r"mine\.json: ") as refused:
        read_costs(json.dumps(known), "mine.json")
    assert str(refused.value) == f"mine.json: {said}"


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(AdviceError, match=r"mine\.json is no file of unit costs"):
        read_costs("version: 1", "mine.json")


def test_writes_cost_as_often_as_there_are_copies_and_reads_once() -> None:
    # 1.1 ms for each operation of a megabyte, everywhere.
    taken = demand(load(MB, create=10, read=20), costs(), copies(3), 1 << 20)
    assert taken.cpu["proxy"] == pytest.approx(30 * 1.1e-3)
    assert taken.cpu["object"] == pytest.approx(50 * 1.1e-3)
    assert (taken.pieces, taken.large, taken.rows, taken.reads) == (30, 0, 30, 20)
    assert (taken.proxy_in, taken.proxy_out) == (30 * MB, 50 * MB)
    assert (taken.storage_in, taken.storage_out) == (30 * MB, 20 * MB)
    assert demand(load(2 * MB, create=1), costs(), copies(3), 1 << 20).large == 3


def test_fragments_cost_by_their_size_and_as_many_devices_as_they_are() -> None:
    # 1.1 ms for a megabyte and 0.6 ms for half of it, at each of the devices of a fragment.
    four, kept = load(2 * MB, create=10, read=20, head=5), coded(4, 2)
    taken = demand(four, costs(), kept, 1 << 20, 3.0)
    assert kept.bytes_per_byte == 1.5
    assert (taken.pieces, taken.large, taken.written_bytes) == (60, 0, 10 * 2 * MB * 1.5)
    assert (taken.reads, taken.read_bytes) == (80, 40 * MB)
    assert (taken.proxy_out, taken.storage_in, taken.storage_out) == (70 * MB, 30 * MB, 40 * MB)
    assert taken.cpu["object"] == pytest.approx((10 * 6 + 25 * 4) * 0.6e-3)
    # Listings have copies, whatever objects have.
    assert taken.rows == 30
    assert taken.cpu["container"] == pytest.approx((10 * 3 + 25) * 0.1e-3)
    assert demand(load(5 * MB, create=10), costs(), kept, 1 << 20, 3.0).large == 60


def test_costs_that_were_measured_with_coding_count_for_coded_objects_alone() -> None:
    known = replace(costs(), coded=coded_costs(5000))
    both = load(2 * MB, create=10, read=20, head=5)
    assert demand(both, known, copies(3), 1 << 20) == demand(both, costs(), copies(3), 1 << 20)
    taken = demand(both, known, coded(4, 2), 1 << 20)
    assert taken.cpu["object"] == pytest.approx((10 * 6 + 25 * 4) * 5e-3)
    assert taken.cpu["proxy"] == pytest.approx(35 * 5e-3)
    # Rows and listings are as with copies.
    assert taken.cpu["container"] == demand(both, costs(), coded(4, 2), 1 << 20).cpu["container"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("data", 1, "coded.data: must be a whole number of at least 2, not 1"),
        ("parity", "two", "coded.parity: must be a whole number of at least 1, not 'two'"),
        ("rebuild_us_per_mb", -1, "coded.rebuild_us_per_mb: must be a number of at least 0, not -1"),
        ("cpu_us", {"proxy": {}}, "coded.cpu_us.proxy: lacks create, read, update, delete, head"),
        ("measured", None, "coded.measured: must be an object with fields"),
    ],
)
def test_wrong_costs_of_coding_are_refused_by_field(field: str, value: Any, said: str) -> None:
    known = document(replace(costs(), coded=coded_costs()))
    assert read_costs(json.dumps(known), "mine.json").coded == coded_costs()
    known["coded"][field] = value
    with pytest.raises(AdviceError) as refused:
        read_costs(json.dumps(known), "mine.json")
    assert str(refused.value) == f"mine.json: {said}"


@pytest.mark.parametrize(
    ("kept", "bytes_per_byte", "may_be_lost", "quorum", "pods"),
    [
        (copies(3), 3, 2, 2, 3),
        (copies(2), 2, 1, 2, 2),
        (coded(2, 1), 1.5, 1, 3, 3),
        (coded(4, 2), 1.5, 2, 5, 3),
        (coded(8, 3), 11 / 8, 3, 9, 4),
        (coded(10, 4), 1.4, 4, 11, 4),
    ],
)
def test_what_copies_and_fragments_take_and_survive(
    kept: Redundancy, bytes_per_byte: float, may_be_lost: int, quorum: int, pods: int
) -> None:
    assert kept.bytes_per_byte == bytes_per_byte
    assert (kept.may_be_lost, kept.quorum, kept.least_pods) == (may_be_lost, quorum, pods)


def test_fewer_places_than_fragments_have_several_each() -> None:
    assert [coded(4, 2).places_lost(places) for places in (0, 1, 2, 3, 5, 6, 7)] == [0, 0, 0, 1, 1, 2, 2]
    assert [copies(3).places_lost(places) for places in (1, 2, 3, 9)] == [0, 1, 2, 2]


def test_rows_are_merged_once_a_second_or_as_seldom_as_they_come() -> None:
    assert folds(0, 10) == 0
    assert folds(0.01, 10) == pytest.approx(0.01, rel=0.01)
    assert folds(100_000, 10) == pytest.approx(10, rel=0.01)
    # However many containers there are, a device merges so many a second.
    known = replace(costs(0, 0), fold_s=0.001)
    many = replace(load(1000, create=50), containers=10_000)
    assert demand(many, known, copies(3), 1 << 20).cpu["container"] == pytest.approx(3 * 25 * 0.001)


def test_devices_are_busy_with_reads_bytes_and_syncs_that_many_writes_share() -> None:
    reads = demand(load(MB, read=10), costs(), copies(3), 1 << 20)
    # 10 ms to get there and 5 ms for the bytes, ten times a second, over two devices.
    assert device_busy(reads, HDD, 2) == pytest.approx(10 * 0.015 / 2)
    one = demand(load(0, create=10), costs(), copies(3), 1 << 20)
    many = demand(load(0, create=10_000), costs(), copies(3), 1 << 20)
    assert device_busy(one, HDD, 30) == pytest.approx(0.01 / 1.01)
    assert 0.9 < device_busy(many, HDD, 30) < 1
    assert device_busy(one, HDD, 0) == math.inf


def test_objects_of_no_bytes_are_none_too_many() -> None:
    empty = load(0)
    assert (empty.objects, fixed(0).mean) == (0, 0)
