"""The small parts: the lease by a clock of our own, the queue, hashes, what counts as up to date, errors of the API."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from swiftlet.errors import SettingsError
from swiftlet_operator.apply import covers, up_to_date, with_digest
from swiftlet_operator.handlers import Heart, _configure, key_of, liveness
from swiftlet_operator.kube import _error
from swiftlet_operator.leader import LIFE_S, MARGIN_PART, Leader
from swiftlet_operator.main import options_of
from swiftlet_operator.manifests import FINALIZER, Kind, Manifest
from swiftlet_operator.passwords import Passwords
from swiftlet_operator.problems import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeUnavailable,
    NotLeader,
)
from swiftlet_operator.reconcile import Key
from swiftlet_operator.tests.fake_kube import FakeKube
from swiftlet_operator.tests.worlds import own
from swiftlet_operator.workqueue import WorkQueue

KEY = Key("data", "store")


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def leads(leader: Leader) -> bool:
    """Whether it leads now; asked anew each time."""
    return leader.leads


async def reconciled(queue: WorkQueue, count: int) -> None:
    """Until so many reconciles have ended."""
    while queue.done < count:  # noqa: ASYNC110 - the queue has no event for tests
        await asyncio.sleep(0)


async def test_a_leader_that_can_not_renew_stops_before_another_begins() -> None:
    kube, clock = FakeKube(), Clock()
    first, second = (Leader(kube, "ops", name, clock) for name in ("first", "second"))
    await first.attempt()
    await second.attempt()
    assert (leads(first), leads(second)) == (True, False)

    kube.failing = {"swiftlet-operator"}
    clock.now += LIFE_S * (1 - MARGIN_PART)
    await first.attempt()
    assert not leads(first)
    with pytest.raises(NotLeader):
        first.require()

    kube.failing = set()
    await second.attempt()
    assert not leads(second)
    clock.now += LIFE_S * MARGIN_PART + 1
    await second.attempt()
    assert leads(second)
    await first.attempt()
    assert not leads(first)


async def test_two_that_take_an_old_lease_at_once_do_not_both_lead() -> None:
    kube, clock = FakeKube(), Clock()
    first, second, third = (Leader(kube, "ops", name, clock) for name in ("first", "second", "third"))
    await first.attempt()
    await asyncio.gather(second.attempt(), third.attempt())
    clock.now += LIFE_S + 1
    await asyncio.gather(second.attempt(), third.attempt())

    assert [second.leads, third.leads].count(True) == 1


async def test_of_operators_that_watch_the_same_only_one_leads_whatever_their_namespaces() -> None:
    kube, clock = FakeKube(), Clock()
    wide = Leader(kube, "ops", "wide", clock)
    blue = Leader(kube, "blue-ops", "blue", clock, LIFE_S, ["blue", "navy"])
    navy = Leader(kube, "navy-ops", "navy", clock, LIFE_S, ["navy"])
    green = Leader(kube, "green-ops", "green", clock, LIFE_S, ["green"])
    for one in (blue, green, wide, navy):
        await one.attempt()
    assert [leads(one) for one in (blue, green, wide, navy)] == [True, True, False, False]
    assert "blue-ops" in {namespace for kind, namespace, _ in kube.objects if kind == "Lease"}

    # One gives its lease back; the other dies, and counts for its life.
    await green._give_back()
    for _ in range(3):
        clock.now += LIFE_S / 3
        await wide.attempt()
        await navy.attempt()
        assert [leads(one) for one in (wide, navy)] == [False, False]
    clock.now += 1
    await navy.attempt()
    assert leads(navy)
    await navy._give_back()
    await wide.attempt()
    assert leads(wide)
    await blue.attempt()
    assert not leads(blue), "it holds its lease no longer than it renews it"


async def test_two_that_begin_at_once_in_two_namespaces_do_not_both_lead() -> None:
    kube, clock = FakeKube(), Clock()
    one, other = Leader(kube, "ops", "one", clock), Leader(kube, "more-ops", "other", clock)

    looked = asyncio.Barrier(2)
    named, calls = kube.named, 0

    async def both_have_looked(kind: Kind, name: str) -> list[Manifest]:
        """Both look before either of them writes."""
        nonlocal calls
        calls += 1
        found = await named(kind, name)
        if calls <= 2:
            await looked.wait()
        return found

    kube.named = both_have_looked  # type: ignore[method-assign]
    await asyncio.gather(one.attempt(), other.attempt())

    assert not (leads(one) and leads(other))
    for _ in range(2):
        await one.attempt()
    assert leads(one) is not leads(other)


async def test_without_the_right_to_see_other_leases_only_an_operator_of_certain_namespaces_leads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kube, clock = FakeKube(), Clock()

    async def forbidden(kind: Kind, name: str) -> list[Manifest]:
        raise KubeForbidden("leases is forbidden")

    kube.named = forbidden  # type: ignore[method-assign]
    wide = Leader(kube, "ops", "wide", clock)
    blue = Leader(kube, "blue-ops", "blue", clock, LIFE_S, ["blue"])
    for _ in range(2):
        await wide.attempt()
        await blue.attempt()

    assert not leads(wide)
    assert "could not be renewed: leases is forbidden" in caplog.text
    assert leads(blue)
    assert caplog.text.count("no other operator watches blue") == 1


async def test_many_events_make_one_reconcile_and_none_is_missed() -> None:
    started, go = asyncio.Event(), asyncio.Event()
    runs = 0

    async def work(_: Key) -> float | None:
        nonlocal runs
        runs += 1
        started.set()
        await go.wait()
        return None

    queue = WorkQueue(work, debounce_s=0)
    for _ in range(10):
        queue.add(KEY)
    await started.wait()
    assert runs == 1
    queue.add(KEY)
    go.set()
    async with asyncio.timeout(5):
        await reconciled(queue, 2)
    assert runs == 2
    await queue.close()


async def test_a_failing_cluster_does_not_stop_the_others() -> None:
    seen: list[str] = []

    async def work(key: Key) -> float | None:
        seen.append(key.name)
        if key.name == "bad":
            raise ValueError("a bug")
        return None

    queue = WorkQueue(work, workers=1, debounce_s=0)
    queue.add(Key("data", "bad"))
    queue.add(Key("data", "good"))
    async with asyncio.timeout(5):
        await reconciled(queue, 2)
    assert sorted(seen) == ["bad", "good"]
    await queue.close()


def test_a_hash_stays_until_the_key_changes() -> None:
    passwords = Passwords()
    first = passwords.hashed("secret", None)

    assert passwords.hashed("secret", first) == first
    assert Passwords().hashed("secret", first) == first
    assert passwords.hashed("another", first) != first
    assert passwords.hashed("secret", "damaged").startswith("$argon2id$")


@pytest.mark.parametrize(
    ("live", "wanted", "covered"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ({}, {"a": {}}, True),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "1000m"}}, True),
        ({"limits": {"cpu": "2"}}, {"limits": {"cpu": "1"}}, False),
        ({"env": [{"name": "X"}, {"name": "A", "value": "1"}]}, {"env": [{"name": "A"}]}, True),
        ({"env": [{"name": "X"}]}, {"env": [{"name": "A"}]}, False),
        ({"ingress": [{}, {}]}, {"ingress": [{}]}, False),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, False),
    ],
)
def test_what_is_covered(live: Any, wanted: Any, covered: bool) -> None:
    assert covers(live, wanted) is covered


def test_a_field_that_is_no_longer_wanted_is_seen() -> None:
    before = with_digest({"metadata": {"name": "x"}, "spec": {"a": 1, "b": 2}})
    after = with_digest({"metadata": {"name": "x"}, "spec": {"a": 1}})

    assert up_to_date(before, before)
    assert not up_to_date(before, after)
    assert not up_to_date(None, after)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (403, KubeForbidden),
        (409, KubeConflict),
        (422, KubeInvalid),
        (429, KubeUnavailable),
        (503, KubeUnavailable),
        (418, KubeError),
    ],
)
def test_answers_become_errors_with_the_servers_words(status: int, error: type[KubeError]) -> None:
    made = _error(status, "PATCH /x", '{"message": "no such luck"}')

    assert type(made) is error
    assert "no such luck" in str(made)


def test_every_object_says_which_cluster_it_is_about() -> None:
    child = {
        "kind": "Pod",
        "metadata": {
            "namespace": "data",
            "labels": {"app.kubernetes.io/instance": "store", "app.kubernetes.io/managed-by": "swiftlet-operator"},
        },
    }

    assert key_of({"kind": "StorageCluster", "metadata": {"namespace": "data", "name": "store"}}) == KEY
    assert key_of(own("StorageUser", "anna", {})) == KEY
    assert key_of(child) == KEY
    assert key_of({"kind": "Pod", "metadata": {"namespace": "data"}}) is None


async def test_a_leader_without_sweeps_is_not_alive() -> None:
    kube, clock = FakeKube(), Clock()
    leader = Leader(kube, "ops", "me", clock)
    assert liveness(Heart(0.0), leader, 10_000.0) == "ok"
    await leader.attempt()

    assert liveness(Heart(9_990.0), leader, 10_000.0) == "ok"
    with pytest.raises(RuntimeError):
        liveness(Heart(0.0), leader, 10_000.0)


def test_the_environment_must_say_where_the_lease_is() -> None:
    with pytest.raises(SettingsError, match="SWIFTLET_IMAGE and POD_NAMESPACE"):
        options_of({})
    options = options_of({"SWIFTLET_IMAGE": "i", "POD_NAMESPACE": "ops", "POD_NAME": "p", "POD_UID": "u"})
    assert (options.identity, options.watched, options.defaults.redis_image) == ("p_u", (), None)


def test_the_environment_may_name_several_namespaces() -> None:
    base = {"SWIFTLET_IMAGE": "i", "POD_NAMESPACE": "ops"}
    assert options_of({**base, "WATCH_NAMESPACES": "blue, green,blue,"}).watched == ("blue", "green")


async def test_our_finalizer_is_none_of_kopfs_business() -> None:
    """kopf takes its finalizer off whatever it sees no reason to guard: ours would come and go without end."""
    settings = kopf.OperatorSettings()
    await _configure(settings)
    assert settings.persistence.finalizer != FINALIZER
