"""Fixtures: `cluster` for all tests, `own_cluster` for one that breaks it, `stores` for a file that does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.standalone.cluster import Cluster, start_cluster

QUICK = {
    "SWIFTLET_CLUSTER__KEY_CHECK_INTERVAL_S": "0.5",
    "SWIFTLET_EXPIRER__INTERVAL_S": "0.5",
    "SWIFTLET_EXPIRER__DELAY_S": "0",
}


class Stores:
    """A store whose services tests may kill, one test after the other."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._running: Cluster | None = None

    def whole(self) -> Cluster:
        """The store with all of its services; what a test before this one has killed is started again."""
        if self._running is None:
            self._running = start_cluster(self._factory.mktemp("store") / "store", settings=QUICK)
        if ended := self._running.services.keys() - self._running.pids.keys():
            self._running.start(*ended)
        return self._running

    def drop(self) -> int:
        """Stop it: who asks again is given a new one. The supervisor's exit code, 0 when there is none."""
        running, self._running = self._running, None
        return 0 if running is None else running.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store that all tests share: leave its services alone."""
    running = start_cluster(tmp_path_factory.mktemp("cluster"))
    yield running
    assert running.stop() == 0, "the store did not end well"


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Yield the stores of test files that kill services of their own store."""
    known = Stores(tmp_path_factory)
    yield known
    assert known.drop() == 0, "the store did not end well"


@pytest.fixture
def own_cluster(stores: Stores, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A store whose services the test may kill. Others use it before and after it, unless the test fails.

    Settings and keys that a test changes have to be as they were in the end.
    """
    failed = request.session.testsfailed
    yield stores.whole()
    if request.session.testsfailed > failed:
        stores.drop()
