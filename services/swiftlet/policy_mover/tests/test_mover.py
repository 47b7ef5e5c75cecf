"""Containers through the phases of a move, by a clock that the test sets: what is waited for, and who goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as Directory

import pytest

from swiftlet.errors import Unavailable
from swiftlet.expiry.expirer import LONGEST_UPLOAD_S
from swiftlet.expiry.tests.support import queue_of
from swiftlet.model import DatabaseName
from swiftlet.names import Path
from swiftlet.placement.moving import Move, MovingObjects
from swiftlet.placement.tests.cluster import ACCOUNT, HASH_PATH, MemoryCluster, at, footer_of, memory_cluster, record_of
from swiftlet.policy_mover.container_pass import ContainerPass, NoLongerMoves, PassReport
from swiftlet.policy_mover.mover import TRIES, Mover, Round, Told
from swiftlet.policy_mover.phases import CanNotMove, Phases
from swiftlet.policy_mover.rows import RowWalk
from swiftlet.policy_mover.states import MoveStates
from swiftlet.policy_mover.tests.moved import NAME, SOURCE, TARGET, Killer, in_policy, no_pace, was_killed
from swiftlet.policy_moves import Phase, PolicyMove
from swiftlet.timestamp import TimestampClock

SERVICES_S = 100.0
BEGUN_S = 2_000_000.0
OTHER = 2


@dataclass
class Scene:
    """A cluster whose containers move, and the time."""

    cluster: MemoryCluster
    now_s: float = BEGUN_S
    told: list[Told] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    unknowing: str = ""
    """What the services say that do not know of moves."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    async def services_s(self) -> float:
        if self.unknowing:
            raise Unavailable(self.unknowing)
        return SERVICES_S

    @property
    def states(self) -> MoveStates:
        """Of a process that has just started."""
        clock = TimestampClock(lambda: int(self.now_s * 1e9))
        return MoveStates(self.cluster.listing_transport, self.cluster.rings.container, HASH_PATH, clock)

    def phases(self, source: int = SOURCE, target: int = TARGET) -> Phases:
        return Phases(self.states, source, target, self.services_s, lambda: self.now_s)

    def make_pass(self, phases: Phases, container: DatabaseName, move: PolicyMove, report: PassReport) -> ContainerPass:
        """A pass as the command makes it."""
        walk = RowWalk(self.cluster.listing_transport, self.cluster.rings.container, HASH_PATH, container)
        objects = MovingObjects(self.cluster.objects, Move.of(move))

        async def still() -> None:
            await phases.still(container)

        policies, queue = (move.source, move.target), queue_of(self.cluster)
        return ContainerPass(walk, container, objects, policies, queue, BEGUN_S, still, report, no_pace, concurrency=2)

    def mover(self, source: int = SOURCE, target: int = TARGET, together: int = 100, again: bool = False) -> Mover:
        phases = self.phases(source, target)
        make_pass = partial(self.make_pass, phases)
        return Mover(phases, make_pass, self.told.append, lambda: self.now_s, self.sleep, together, again)

    async def run(self, *names: str, leave: bool = False, source: int = SOURCE, target: int = TARGET) -> Round:
        """Run a mover over these containers, which began just now."""
        return await self.mover(source, target).run(listing(*names or ("c",)), leave=leave)

    async def move(self, container: str = "c") -> PolicyMove | None:
        """The container's state."""
        return (await self.states.look(DatabaseName(ACCOUNT, container))).newest.move

    async def put(self, name: str, second: float, container: str = "c", policy: int = SOURCE) -> None:
        path, body = Path(ACCOUNT, container, name), name.encode()
        await self.cluster.objects.put(path, policy, record_of(path, at(second)), body, footer_of(body))


def listing(*names: str) -> Callable[[], AsyncIterator[DatabaseName]]:
    """Lists these containers at each call."""

    async def listed() -> AsyncIterator[DatabaseName]:
        for name in names:
            yield DatabaseName(ACCOUNT, name)

    return listed


@pytest.fixture
async def scene(tmp_path: Directory) -> AsyncIterator[Scene]:
    """A container with two objects."""
    async with memory_cluster(tmp_path) as cluster:
        await cluster.make_container()
        made = Scene(cluster)
        await made.put("a", 2)
        await made.put("b", 2)
        yield made


def phases_of(told: list[Told]) -> list[str]:
    return [one.standing.phase.value for one in told if one.standing and one.standing.phase and one.report is None]


async def test_a_container_is_announced_and_moved_and_settled_a_day_after_all_knew(scene: Scene) -> None:
    done = await scene.run()
    assert (done.settled, done.copied, done.failed) == (1, 0, 0)
    # Each phase is waited for as long as services act by the one before, and uploads take a day.
    assert scene.slept == [pytest.approx(seconds, abs=0.1) for seconds in (SERVICES_S, SERVICES_S, LONGEST_UPLOAD_S)]
    assert phases_of(scene.told) == ["announced", "moving", "moving", "settled"]
    move = await scene.move()
    assert move is not None
    assert (move.source, move.target, move.phase) == (SOURCE, TARGET, Phase.SETTLED)
    for name in "ab":
        assert await in_policy(scene.cluster, SOURCE, name) is None
    scene.slept.clear()
    assert (await scene.run()).settled == 1
    assert scene.slept == []


async def test_an_object_of_a_settled_container_whose_row_came_late_is_moved_when_that_is_asked_for(
    scene: Scene,
) -> None:
    assert (await scene.run()).settled == 1
    # A device that was away since before the move has brought it.
    await scene.put("late", 3)
    assert (await scene.run()).settled == 1
    assert await in_policy(scene.cluster, SOURCE, "late") is not None
    done = await scene.mover(again=True).run(listing("c"), leave=False)
    assert (done.settled, done.failed) == (1, 0)
    assert await in_policy(scene.cluster, SOURCE, "late") is None
    assert await in_policy(scene.cluster, TARGET, "late") is not None


async def test_left_in_moving_it_is_settled_by_a_later_run_and_not_before_its_day_is_over(scene: Scene) -> None:
    done = await scene.run(leave=True)
    assert (done.settled, done.copied) == (0, 1)
    assert done.settles_s == pytest.approx(scene.now_s + LONGEST_UPLOAD_S, abs=0.1)
    assert await in_policy(scene.cluster, SOURCE, "a") is None
    scene.now_s = done.settles_s - 1
    # An upload that took long, by a proxy that knew nothing of the move when it began.
    await scene.put("late", 3)
    assert (await scene.run(leave=True)).copied == 1
    move = await scene.move()
    assert move is not None
    assert move.phase is Phase.MOVING
    scene.now_s = done.settles_s + 1
    await scene.put("later", 3)
    assert (await scene.run(leave=True)).settled == 1
    reports = [one.report for one in scene.told if one.report is not None]
    # The pass that moves something does not settle, the one after it does.
    assert [report.moved for report in reports] == [2, 1, 1, 0]
    assert await in_policy(scene.cluster, SOURCE, "later") is None


async def test_while_a_replica_does_not_show_a_phase_the_next_one_does_not_begin(scene: Scene) -> None:
    first, *_ = scene.cluster.container_devices()
    with scene.cluster.databases_down(first):
        done = await scene.run(leave=True)
    assert (done.failed, done.copied) == (1, 0)
    move = await scene.move()
    assert move is not None
    assert (move.phase, move.known) == (Phase.ANNOUNCED, None)
    problems = [one.problem for one in scene.told if one.problem]
    assert len(problems) == TRIES
    assert problems[0] == f"/{ACCOUNT}/c is not announced on all replicas: {first.name}"
    assert await in_policy(scene.cluster, SOURCE, "a") is not None
    # It is told when it is there again, and only then the time of the phase begins.
    scene.slept.clear()
    assert (await scene.run(leave=True)).copied == 1
    assert scene.slept[-1] == pytest.approx(SERVICES_S, abs=0.1)


async def test_a_mover_that_is_started_again_waits_only_for_the_rest(scene: Scene) -> None:
    phases = scene.phases()
    await phases.advance(NAME)
    standing = await phases.advance(NAME)
    assert standing.next_s == pytest.approx(scene.now_s + SERVICES_S, abs=0.1)
    scene.now_s += 60
    again = await scene.phases().advance(NAME)
    assert (again.phase, again.next_s) == (Phase.ANNOUNCED, standing.next_s)
    assert await scene.phases().standing(NAME) == again
    scene.now_s += 41
    moving = await scene.phases().advance(NAME)
    assert moving.phase is Phase.MOVING
    assert not moving.is_over(scene.now_s + 1000)
    assert moving.move is not None
    assert again.move is not None
    assert moving.move.announced == again.move.since


async def test_nothing_is_announced_while_a_service_does_not_know_of_moves(scene: Scene) -> None:
    scene.unknowing = "proxy 1 does not know"
    assert (await scene.run()).failed == 1
    assert await scene.move() is None
    assert scene.told[0].problem == "proxy 1 does not know"


async def test_a_container_of_another_policy_or_with_another_move_is_left_alone(scene: Scene) -> None:
    with pytest.raises(CanNotMove, match="/c has policy 0, not 1"):
        await scene.phases(TARGET, SOURCE).advance(NAME)
    await scene.phases().advance(NAME)
    for pair in ((SOURCE, OTHER), (TARGET, SOURCE)):
        with pytest.raises(CanNotMove, match="/c moves from policy 0 to 1, which has to be settled first"):
            await scene.phases(*pair).advance(NAME)
    done = await scene.run(target=OTHER)
    assert done.failed == 1
    assert (await scene.run()).settled == 1
    with pytest.raises(CanNotMove, match="/c has policy 1, not 0"):
        await scene.phases(SOURCE, OTHER).advance(NAME)


async def test_a_container_moves_back_and_not_on_while_objects_without_rows_may_be_left(scene: Scene) -> None:
    for source, target in ((SOURCE, TARGET), (TARGET, SOURCE), (SOURCE, TARGET)):
        assert (await scene.run(source=source, target=target)).settled == 1
        for name in "ab":
            assert await in_policy(scene.cluster, source, name) is None
            assert await in_policy(scene.cluster, target, name) is not None
    with pytest.raises(CanNotMove, match="it has moved out of policy 0, which has to be retired before it moves on"):
        await scene.phases(TARGET, OTHER).advance(NAME)


async def test_containers_are_begun_together_and_no_more_than_told(scene: Scene) -> None:
    names = [f"c{number}" for number in range(5)]
    for name in names:
        await scene.cluster.make_container(name)
    done = await scene.mover(together=2).run(listing(*names), leave=True)
    assert done.copied == 5
    begun, most = set(), 0
    for one in scene.told:
        if one.report is not None:
            begun.discard(one.container)
        elif one.standing is not None and one.standing.phase is Phase.ANNOUNCED:
            begun.add(one.container)
            most = max(most, len(begun))
    assert most == 2
    # Two wait at the same time.
    assert sum(scene.slept) == pytest.approx(3 * 2 * SERVICES_S, abs=1)


async def test_what_fails_is_tried_again_and_the_others_go_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.cluster.make_container("d")
    await scene.put("x", 2, "d")
    real, failures = scene.cluster.objects.upload, 3

    async def upload(path: Path, *args: object, **more: object) -> object:
        nonlocal failures
        if path.container == "c" and path.obj == "a" and failures:
            failures -= 1
            raise Unavailable("too few devices")
        return await real(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(scene.cluster.objects, "upload", upload)
    done = await scene.run("c", "d", leave=True)
    assert (done.copied, done.failed) == (2, 0)
    assert [one.problem for one in scene.told if one.problem] == [f"/{ACCOUNT}/c: 1 objects could not be moved"] * 3
    failures = 1000
    await scene.put("a", 5)
    done = await scene.run("c", "d", leave=True)
    assert (done.copied, done.failed) == (1, 1)
    assert await in_policy(scene.cluster, SOURCE, "a") is not None


async def test_a_container_that_was_deleted_is_done_with(scene: Scene) -> None:
    await scene.cluster.make_container("d")
    await scene.cluster.listings.delete_container(ACCOUNT, "d", at(3))
    assert await scene.run("d") == Round()


async def test_objects_of_a_container_that_was_created_again_stay_where_they_are(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the pass runs all is deleted, and a container of the same name is made in the source."""
    cluster, real = scene.cluster, scene.cluster.objects.upload
    assert (await scene.run(leave=True)).copied == 1
    await scene.put("b", 5)

    async def upload(*args: object, **more: object) -> object:
        monkeypatch.setattr(cluster.objects, "upload", real)
        upload = await real(*args, **more)  # type: ignore[arg-type]
        for name in "ab":
            for policy, time in ((TARGET, at(7)), (SOURCE, at(6))):
                await cluster.objects.delete(Path(ACCOUNT, "c", name), policy, time)
        later = scene.now_s + 1
        await cluster.listings.delete_container(ACCOUNT, "c", at(later))
        await cluster.listings.put_container(ACCOUNT, "c", at(later + 1), {}, SOURCE, SOURCE)
        await scene.put("b", later + 2)
        return upload

    monkeypatch.setattr(cluster.objects, "upload", upload)
    move = await scene.move()
    assert move is not None
    with pytest.raises(NoLongerMoves):
        await scene.make_pass(scene.phases(), NAME, move, PassReport()).move()
    assert await in_policy(cluster, SOURCE, "b") is not None
    assert await in_policy(cluster, TARGET, "b") is None


async def test_a_mover_that_is_killed_before_any_of_its_calls_to_databases_is_finished_by_the_next_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = scene.cluster.listing_transport
    killer = Killer(
        monkeypatch, (transport, "container_info"), (transport, "post_container"), (transport, "compare_rows")
    )
    kills, is_done = 0, False
    while not is_done:
        name = f"k{kills}"
        await scene.cluster.make_container(name)
        await scene.put("x", 2, name)
        killer.left = kills
        is_done = not await was_killed(ended(scene.run(name)))
        killer.left = None
        done = await scene.run(name)
        assert (done.settled, done.failed) == (1, 0), [one.problem for one in scene.told if one.problem]
        move = await scene.move(name)
        assert move is not None
        assert move.phase is Phase.SETTLED
        kills += 3
    assert kills > 30


async def ended(work: Awaitable[Round]) -> None:
    """A run that is not killed succeeds."""
    done = await work
    assert (done.settled, done.failed) == (1, 0)
