"""What follows from what places show: 4+2 on six devices, the local place is place 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from swiftlet.model import Entry, Kind
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.coded.layout import Spot
from swiftlet.sync.coded.redundancy import SHORT, Tally
from swiftlet.sync.coded.views import Clock, Found, Lack, View, lacks
from swiftlet.timestamp import Timestamp

CODING = Coding(4, 2, 1024)
NOW_S = 100_000.0
CLOCK = Clock(NOW_S, NOW_S - 3600)


def spot(place: int) -> Spot:
    """Return a place; each has a device of its own."""
    return Spot(Device(place, f"d{place}", "127.0.0.1", 1, "d", "r", f"z{place}", f"n{place}", 1.0), place)


def view_of(*groups: Sequence[int]) -> View:
    """Return a view of partition 7 whose places are in these groups."""
    return View(7, [[spot(place) for place in group] for group in groups], is_empty=False)


def data(number: int, age_s: float = 1000.0, kind: Kind = Kind.DATA) -> Entry:
    """Return the entry of an object."""
    return Entry(bytes([number]) * 16, kind, Timestamp.at(NOW_S - age_s))


def looked(view: View, *shown: Sequence[Entry]) -> tuple[list[tuple[int, int, int, int]], Found]:
    """Return what is lacking as (object, place that has it, place that lacks it, places that show it)."""
    found = Found()
    given = [{entry.digest: entry for entry in entries} for entries in shown]
    brief = lambda one: (one.digest[0], one.source.place, one.target.place, one.shown_by)  # noqa: E731
    lacking: list[Lack] = list(lacks(view, given, CODING.fragments, CLOCK, found))
    return sorted(map(brief, lacking)), found


def test_a_local_place_that_lacks_an_object_is_brought_it_and_it_is_counted() -> None:
    found = looked(view_of([1], [2, 3, 4, 5, 0]), [], [data(9)])
    assert found == ([(9, 2, 1, 5)], Found(behind=1, unsent=0, objects=Counter({5: 1})))


def test_the_next_place_is_brought_what_any_other_has_and_the_others_are_left_to_those_before_them() -> None:
    lacking, found = looked(view_of([1, 0], [2], [3, 5], [4]), [data(8)], [], [data(8), data(9)], [data(9)])
    # Place 1 lacks object 9, place 2 lacks both; what places 3 to 5 lack is told to them by others. Of object 8 place 1
    # and 3 may have two generations.
    assert lacking == [(8, 1, 2, 4), (8, 3, 1, 6), (9, 3, 1, 3), (9, 3, 2, 3)]
    assert found == Found(behind=1, unsent=2, objects=Counter({4: 1, 3: 1}))


def test_places_that_lack_the_same_as_the_local_one_are_left_to_themselves() -> None:
    assert looked(view_of([1, 2], [3, 4, 5, 0]), [], [data(9)])[0] == [(9, 3, 1, 4)]


def test_the_newest_version_counts_and_comes_from_who_has_it() -> None:
    lacking, found = looked(view_of([1, 3], [2, 4], [5, 0]), [data(9, 900)], [data(9, 1000)], [data(9, 500)])
    assert lacking == [(9, 5, 1, 2), (9, 5, 2, 2)]
    assert found.objects == {2: 1}


def test_deletions_are_no_objects_and_old_ones_are_told_only_where_the_object_is() -> None:
    new, old = data(9, 1000, Kind.TOMBSTONE), data(9, 4000, Kind.TOMBSTONE)
    assert looked(view_of([1, 2, 3, 4, 5], [0]), [], [new]) == ([(9, 0, 1, 1)], Found(behind=1))
    assert looked(view_of([1, 2, 3, 4, 5], [0]), [], [old]) == ([], Found())
    assert looked(view_of([1, 2, 3, 4, 5], [0]), [data(9, 5000)], [old]) == ([(9, 0, 1, 1)], Found(behind=1))


def test_a_deletion_counts_where_fragments_have_the_same_timestamp() -> None:
    gone = data(9, kind=Kind.TOMBSTONE)
    assert looked(view_of([1], [2, 3, 4, 5, 0]), [data(9)], [gone]) == ([(9, 2, 1, 5)], Found(behind=1))
    assert looked(view_of([1, 3, 4, 5, 0], [2]), [gone], [data(9)]) == ([(9, 1, 2, 5)], Found(unsent=1))


def test_writes_that_may_go_on_are_left_alone() -> None:
    assert looked(view_of([1], [2, 3, 4, 5, 0]), [], [data(9, 1.0)]) == ([], Found())


def test_equal_timestamps_under_unequal_hashes_are_two_generations_that_only_devices_tell_apart() -> None:
    lacking, found = looked(view_of([1, 3, 4, 5, 0], [2]), [data(8)], [data(8)])
    assert lacking == [(8, 1, 2, 5), (8, 2, 1, 1)]
    assert found == Found(behind=1)


def test_equal_objects_beside_one_that_explains_the_difference_come_last_and_prove_nothing() -> None:
    lacking, found = looked(view_of([1, 3, 4, 5, 0], [2]), [data(8), data(9)], [data(8)])
    assert lacking == [(8, 1, 2, 6), (8, 2, 1, 6), (9, 1, 2, 5)]
    assert found == Found(unsent=1, objects=Counter({5: 1}))


@pytest.mark.parametrize(
    ("groups", "objects", "partitions"),
    [
        ([[1, 2, 3, 4, 5, 0]], {}, {}),
        ([[1, 2, 3, 4, 5]], {}, {"5": 1}),
        ([[1, 2, 3, 4, 5]], {4: 2}, {"4": 1}),
        ([[1, 2, 3]], {}, {SHORT: 1}),
        ([[1, 3, 4, 5], [2]], {4: 7, 3: 1}, {SHORT: 1}),
    ],
)
def test_a_partition_stands_where_its_least_redundant_object_does(
    groups: list[list[int]], objects: dict[int, int], partitions: dict[str, int]
) -> None:
    tally, found = Tally(CODING), Found()
    found.objects.update(objects)
    tally.add(view_of(*groups), found)
    shown = tally.fields()
    assert shown["partitions"] == {"6": 0, "5": 0, "4": 0, SHORT: 0} | partitions
    below = sum(count for places, count in objects.items() if places < 4)
    counted = {"6": 0, "5": objects.get(5, 0), "4": objects.get(4, 0), SHORT: below}
    assert shown["objects"] == (counted if partitions else {"6": 0, "5": 0, "4": 0, SHORT: 0})


def test_an_empty_partition_does_not_count() -> None:
    tally = Tally(CODING)
    tally.add(View(7, [[spot(0), spot(1)]], is_empty=True), Found())
    assert not tally.partitions
