"""Who is compared with whom, in every mode, with and without failed holders."""

from __future__ import annotations

import pytest

from swiftlet.sync.session.topology import ALL_TO_ALL, BATCHED, CHAIN, LIGHTSYNC, MODES, STAR, Mode, neighbours

RING = (7, 3, 9, 1)


@pytest.mark.parametrize("mode", [BATCHED, LIGHTSYNC])
def test_clockwise_and_round_again(mode: Mode) -> None:
    assert [neighbours(mode, RING, device, ()) for device in RING] == [(3,), (9,), (1,), (7,)]


def test_a_failed_neighbour_is_skipped_to_the_next_clockwise() -> None:
    assert neighbours(LIGHTSYNC, RING, 7, {3}) == (9,)
    assert neighbours(LIGHTSYNC, RING, 7, {3, 9}) == (1,)
    assert neighbours(LIGHTSYNC, RING, 9, {1, 7}) == (3,)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_alone_there_is_nobody_to_ask(mode: Mode) -> None:
    assert neighbours(mode, RING, 7, {3, 9, 1}) == ()
    assert neighbours(mode, (7,), 7, ()) == ()


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_who_counts_as_failed_still_works_for_itself(mode: Mode) -> None:
    assert neighbours(mode, RING, 7, {7}) == neighbours(mode, RING, 7, ())


def test_all_to_all_star_and_chain() -> None:
    assert neighbours(ALL_TO_ALL, RING, 9, {3}) == (7, 1)
    assert [neighbours(STAR, RING, device, ()) for device in RING] == [(3, 9, 1), (7,), (7,), (7,)]
    assert neighbours(STAR, RING, 9, {7}) == (3,)
    assert [neighbours(CHAIN, RING, device, ()) for device in RING] == [(3,), (9, 7), (1, 3), (9,)]
    assert neighbours(CHAIN, RING, 7, {3}) == (9,)


def test_who_is_no_holder_has_no_neighbours() -> None:
    with pytest.raises(ValueError, match="device 2 is not one of the holders"):
        neighbours(BATCHED, RING, 2, ())
