"""What two devices share is proved by one hash, whatever its size, and what differs is found in few bytes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swiftlet_native import PairRoots, sync_shared, xxh3_128

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.shared.pairs import PairTable
from swiftlet.sync.session import pair_messages, pair_search
from swiftlet.sync.session.effects import Ask, AskHere, Limits, Proved, ReadPair, ReadRoots, Session, Terms
from swiftlet.sync.session.messages import Compare, decode_reply, decode_request, encode
from swiftlet.sync.session.neighbour import neighbour_session, proof_session
from swiftlet.sync.session.pair_messages import MAX_SKIPPED, Pair
from swiftlet.sync.session.pair_search import SharedPartitions, shared_by, steps
from swiftlet.sync.session.responder import answer_by
from swiftlet.sync.session.tests.world import Peers, at, digest
from swiftlet.sync.session.topology import BATCHED, neighbours

DEVICES = 5


def ring_of(part_power: int, replicas: int = 3, seed: int = 1, version: int = 1, devices: int = DEVICES) -> Ring:
    """Return a ring with random holders, different ones for each partition."""
    random = Random(seed)
    orders = [random.sample(range(devices), replicas) for _ in range(64)]
    chosen = random.choices(orders, k=1 << part_power)
    rows = [array("H", [order[replica] for order in chosen]) for replica in range(replicas)]
    found = [Device(id_, f"n{id_}", f"n{id_}", 1, "d", "r", f"z{id_}", f"n{id_}", 1.0) for id_ in range(devices)]
    return Ring(version, part_power, replicas, found, rows)


def together(ring: Ring, one: int, other: int) -> list[int]:
    return sync_shared(ring.rows, one, other, (), False)


def root_of(partition: int, version: int = 0) -> bytes:
    return xxh3_128(b"%d %d" % (partition, version))


@dataclass
class Roots:
    """One device that has nothing but roots."""

    ring: Ring | None
    pair: Pair
    changed: dict[int, int] = field(default_factory=dict)
    """Partitions that have not their usual version."""

    def __post_init__(self) -> None:
        self.of_pair: PairRoots | None = None
        if self.ring is not None:
            self.of_pair = PairTable(self.ring, self.ring.partition_count).of(self.pair)
            for partition in self.of_pair.members:
                self.of_pair.put(partition, self.root(partition))

    def root(self, partition: int) -> bytes:
        return root_of(partition, self.changed.get(partition, 0))

    def change(self, partition: int, version: int) -> None:
        self.changed[partition] = version
        if self.of_pair is not None:
            self.of_pair.put(partition, self.root(partition))

    def answer(self, data: bytes, limits: Limits | None = None) -> bytes:
        version = 0 if self.ring is None else self.ring.version
        return encode(answer_by(self._look, decode_request(data), version, lambda _: True, limits))

    def _look(self, effect: object) -> object:
        if isinstance(effect, ReadPair):
            return self.of_pair
        assert isinstance(effect, ReadRoots)
        return [self.root(partition) for partition in effect.partitions]


@dataclass
class Talk:
    """What a session has said, heard and reported."""

    asked: int = 0
    """Bytes of questions to the peer."""
    answered: int = 0
    questions: int = 0
    named: int = 0
    """Questions that named partitions."""
    proved: set[int] = field(default_factory=set)
    error: Exception | None = None

    @property
    def bytes(self) -> int:
        return self.asked + self.answered


def talk(
    here: Roots,
    there: Roots,
    session: Session,
    before: Callable[[Talk], None] = lambda talk: None,
    limits: Limits | None = None,
) -> Talk:
    """Drive a session between two devices; `before` is called before each question to the peer."""
    found = Talk()
    effect = session.begin(0.0)
    while effect is not None:
        observation: object = None
        if isinstance(effect, AskHere):
            observation = decode_reply(here.answer(encode(effect.request), limits))
        elif isinstance(effect, Ask):
            before(found)
            question = encode(effect.request)
            answer = there.answer(question, limits)
            found.asked += len(question)
            found.answered += len(answer)
            found.questions += 1
            found.named += isinstance(effect.request, Compare)
            observation = decode_reply(answer)
        elif isinstance(effect, ReadRoots):
            observation = [here.root(partition) for partition in effect.partitions]
        else:
            assert isinstance(effect, Proved)
            found.proved.update(effect.partitions)
        effect = session.resume(observation, 0.0)
    found.error = session.error
    return found


def compare(here: Roots, there: Roots, shared: SharedPartitions, **more: object) -> Talk:
    limits = more.pop("limits", None)
    terms = Terms(ring_version=1, limits=limits or Limits())  # type: ignore[arg-type]
    session = proof_session(terms, shared.pair.answerer, shared.partitions, shared)
    return talk(here, there, session, limits=limits, **more)  # type: ignore[arg-type]


def setting(ring: Ring, changed: Iterable[int] = ()) -> tuple[Roots, Roots, SharedPartitions]:
    pair = Pair(0, 1)
    shared = shared_by(pair, frozenset(together(ring, 0, 1)), ring.part_power)
    assert shared is not None
    return Roots(ring, pair), Roots(ring, pair, dict.fromkeys(changed, 1)), shared


def by_name(here: Roots, there: Roots, partitions: Collection[int]) -> Talk:
    """Return what the same costs where every partition is named."""
    return talk(here, there, proof_session(Terms(ring_version=1), 1, sorted(partitions)))


@pytest.mark.parametrize("part_power", [14, 18])
def test_a_stable_pair_needs_a_few_bytes_at_any_number_of_partitions(part_power: int) -> None:
    here, there, shared = setting(ring_of(part_power))
    found = compare(here, there, shared)
    assert found.proved == shared.partitions
    assert len(found.proved) > (1 << part_power) / 5
    assert (found.questions, found.error) == (1, None)
    assert found.bytes <= 40


@pytest.mark.parametrize("part_power", [14, 18])
def test_d_partitions_that_differ_cost_d_log_n(part_power: int) -> None:
    ring = ring_of(part_power)
    here, _, shared = setting(ring)
    partitions = sorted(shared.partitions)
    depth = part_power / 4
    for differing in (1, 8, len(partitions) // 100):
        changed = Random(differing).sample(partitions, differing)
        there = setting(ring, changed)[1]
        found = compare(here, there, shared)
        assert found.proved == set(partitions) - set(changed)
        assert found.bytes <= 250 + 36 * differing * depth
        assert found.named == 0
        assert found.questions <= 2 + len(steps(part_power, len(partitions)))
    assert found.bytes * 20 <= by_name(here, there, partitions).bytes


def test_where_all_differ_it_costs_less_than_to_name_them() -> None:
    here, _, shared = setting(ring_of(14))
    there = setting(ring_of(14), shared.partitions)[1]
    found = compare(here, there, shared)
    assert (found.proved, found.error) == (set(), None)
    assert found.bytes < 0.6 * by_name(here, there, shared.partitions).bytes


def test_what_changes_during_a_search_is_found_by_the_next_one() -> None:
    ring = ring_of(12)
    partitions = together(ring, 0, 1)
    here, there, shared = setting(ring, partitions[:3])
    late = iter([(3, partitions[10]), (6, partitions[20])])
    coming = [next(late)]

    def before(talk: Talk) -> None:
        if coming and talk.questions == coming[0][0]:
            there.change(coming.pop()[1], 7)
            coming.extend([one] if (one := next(late, None)) else [])

    found = compare(here, there, shared, before=before)
    assert not coming
    assert found.proved == set(partitions) - {*partitions[:3], partitions[10], partitions[20]}
    assert found.named == 0


def test_where_changes_never_end_partitions_are_named_and_nothing_wrong_is_proved() -> None:
    ring = ring_of(12)
    here, there, shared = setting(ring)
    waiting = list(together(ring, 0, 1))
    Random(5).shuffle(waiting)

    def before(talk: Talk) -> None:
        there.change(waiting.pop(), 7)

    found = compare(here, there, shared, before=before)
    assert found.named > 0
    assert found.error is None
    assert found.proved == {p for p in shared.partitions if p not in there.changed}


def test_what_only_looked_different_is_proved_after_all() -> None:
    ring = ring_of(12)
    partitions = together(ring, 0, 1)
    here, there, shared = setting(ring, [partitions[5]])

    def before(talk: Talk) -> None:
        if talk.questions == 1:
            here.change(partitions[5], 1)

    assert compare(here, there, shared, before=before).proved == shared.partitions


@pytest.mark.parametrize("ringless", ["here", "there"])
def test_without_a_ring_on_either_side_partitions_are_named(ringless: str) -> None:
    ring = ring_of(10)
    here, there, shared = setting(ring, together(ring, 0, 1)[:2])
    (here if ringless == "here" else there).ring = None
    (here if ringless == "here" else there).of_pair = None
    found = compare(here, there, shared)
    assert found.named == 1
    assert found.proved == set(together(ring, 0, 1)[2:])


def test_a_server_here_with_another_ring_than_the_session_proves_nothing_about_its_own() -> None:
    ring, other = ring_of(10), ring_of(10, seed=2, version=2)
    _, there, shared = setting(ring)
    found = compare(Roots(other, shared.pair), there, shared)
    assert found.named == 1
    assert found.proved == shared.partitions


def test_with_another_ring_there_only_what_both_share_is_proved_by_the_hash() -> None:
    ring = ring_of(12)
    rows = [array("H", row) for row in ring.rows]
    for partition in together(ring, 0, 1)[:4]:
        for row in rows:
            row[partition] = {0: 4, 4: 0}.get(row[partition], row[partition])
    newer = Ring(2, 12, 3, ring.devices, rows)
    gone = set(together(ring, 0, 1)) - set(together(newer, 0, 1))
    come = set(together(newer, 0, 1)) - set(together(ring, 0, 1))
    assert gone
    here, _, shared = setting(ring)
    found = compare(here, Roots(newer, shared.pair), shared)
    assert found.named == 0
    assert found.proved == set(shared.partitions) - gone
    # The other way round the neighbour's ring has more.
    here, _, shared = setting(newer)
    found = compare(here, Roots(ring, shared.pair), shared)
    assert found.named == 0
    assert found.proved == set(shared.partitions) - come


def test_equal_roots_of_other_partitions_prove_nothing() -> None:
    pair = Pair(0, 1)
    one = Ring(1, 1, 2, ring_of(1).devices, [array("H", [0, 2]), array("H", [1, 3])])
    other = Ring(1, 1, 2, ring_of(1).devices, [array("H", [2, 0]), array("H", [3, 1])])
    here, there = Roots(one, pair), Roots(other, pair)
    for roots in (here, there):
        assert roots.of_pair is not None
        for partition in roots.of_pair.members:
            roots.of_pair.put(partition, root_of(7))
    shared = shared_by(pair, frozenset({0}), 1)
    assert shared is not None
    there.change(0, 3)
    there.changed[0] = 3
    assert compare(here, there, shared).proved == set()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([1, 2, 7, 4096]), st.sampled_from([1, 5, 65536]))
def test_random_worlds_prove_exactly_what_is_equal(seed: int, part_power: int, nodes: int, branches: int) -> None:
    random = Random(seed)
    ring = ring_of(part_power, random.choice([2, 3, 4]), seed)
    partitions = together(ring, 0, 1)
    here, there, shared = setting(ring, [p for p in partitions if random.random() < random.choice([0.01, 0.2, 1.0])])
    found = compare(here, there, shared, limits=Limits(nodes=nodes, branches=branches))
    assert found.error is None
    assert found.proved == {p for p in partitions if p not in there.changed}


def test_short_hashes_that_collide_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds nothing, or not all, leads to no proof."""
    ring = ring_of(10)
    partitions = together(ring, 0, 1)
    original = pair_messages.differing_branches
    hidden = partitions[3]

    def blind(mine: object, theirs: object, step: object) -> tuple[int, list[int]]:
        compared, found = original(mine, theirs, step)  # type: ignore[arg-type]
        return compared, [one for one in found if one != hidden >> step.end]  # type: ignore[attr-defined]

    monkeypatch.setattr(pair_search, "differing_branches", blind)
    for changed in ([hidden], [hidden, partitions[-1]]):
        here, there, shared = setting(ring, changed)
        found = compare(here, there, shared)
        assert found.proved == set(partitions) - set(changed)
        assert found.named == 1


def test_too_many_skipped_devices_have_no_name() -> None:
    assert shared_by(Pair(0, 1, True, tuple(range(MAX_SKIPPED))), [1], 4) is not None
    assert shared_by(Pair(0, 1, True, tuple(range(MAX_SKIPPED + 1))), [1], 4) is None


@given(st.integers(0, 2**32), st.sets(st.integers(0, 5)))
def test_clockwise_pairs_are_those_of_the_mode(seed: int, failed: set[int]) -> None:
    ring = ring_of(5, 3, seed, devices=6)
    for local in range(6):
        by_peer: dict[int, list[int]] = {}
        for partition in range(ring.partition_count):
            holders = [device.id for device in ring.primaries(partition)]
            if local in holders:
                for peer in neighbours(BATCHED, holders, local, failed):
                    by_peer.setdefault(peer, []).append(partition)
        for peer in range(6):
            found = sync_shared(ring.rows, local, peer, sorted(failed), True)
            assert found == by_peer.get(peer, [])


@pytest.mark.parametrize("part_power", range(1, 33))
@pytest.mark.parametrize("partitions", [0, 1, 9, 100, 5000, 1 << 20])
def test_steps_lead_down_to_single_partitions(part_power: int, partitions: int) -> None:
    found = steps(part_power, min(partitions, 1 << part_power))
    assert found[-1] == 0
    assert all(0 < one - other <= 16 for one, other in zip((part_power, *found), found, strict=False))


def test_a_session_brings_into_agreement_what_it_finds() -> None:
    ring = ring_of(6)
    peers = Peers()
    peers.give_ring(ring)
    partitions = together(ring, 0, 1)
    for number, partition in enumerate(partitions):
        peers.put([0, 1], number, 5.0, partition)
    peers.put([0], 900, 6.0, partitions[2])
    peers.put([1], 901, 6.0, partitions[7])
    shared = shared_by(Pair(0, 1), partitions, ring.part_power)
    peers.drive(0, neighbour_session(Terms(mode=BATCHED), 1, partitions, shared))
    assert all(peers.entries(0, partition) == peers.entries(1, partition) for partition in partitions)
    proved = {p for told in peers.told if isinstance(told, Proved) for p in told.partitions}
    assert proved == set(partitions) - {partitions[2], partitions[7]}
    assert {entry.digest for entry in peers.entries(1, partitions[2])} >= {digest(900)}
    assert at(6.0) in {entry.timestamp for entry in peers.entries(0, partitions[7])}
    assert not any(isinstance(message, Compare) for _, message, _ in peers.said)
