"""Fixtures: `cluster` for all tests, `own_cluster` for one that breaks it, `stores` for a file that does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster, start_cluster

QUICK = {
    "SWIFTLET_CLUSTER__KEY_CHECK_INTERVAL_S": "0.5",
    "SWIFTLET_EXPIRER__INTERVAL_S": "3",
    "SWIFTLET_EXPIRER__DELAY_S": "0",
    "SWIFTLET_CONTAINER_SYNC__INTERVAL_S": "1",
    "SWIFTLET_REALMS__CHECK_INTERVAL_S": "0.2",
}


class Stores:
    """A store that tests share, one after the other; it is started when the first one asks for it."""

    def __init__(self, factory: pytest.TempPathFactory, settings: Mapping[str, str]) -> None:
        self._factory = factory
        self._settings = settings
        self._running: Cluster | None = None

    def running(self) -> Cluster:
        """The store, started if there is none."""
        if self._running is None:
            root = self._factory.mktemp("store")
            # Tests of container sync write their realms into it, once they know where the store is.
            realms = root / "realms.conf"
            realms.write_text("")
            settings = {**self._settings, "SWIFTLET_REALMS__FILE": str(realms)}
            self._running = start_cluster(root / "store", settings=settings)
        return self._running

    def whole(self) -> Cluster:
        """The store with all of its services; what a test before this one has killed is started again."""
        running = self.running()
        if ended := running.services.keys() - running.pids.keys():
            running.start(*ended)
        return running

    @contextmanager
    def lent(self, request: pytest.FixtureRequest) -> Iterator[Cluster]:
        """The whole store for one test; one that fails leaves none to the next test."""
        failed = request.session.testsfailed
        yield self.whole()
        if request.session.testsfailed > failed:
            self.drop()

    def drop(self) -> int:
        """Stop it: who asks again is given a new one. The supervisor's exit code, 0 when there is none."""
        running, self._running = self._running, None
        return 0 if running is None else running.stop()


HERE = Path(__file__).parent
QUIET, KILLED = "quiet_stores", "stores"
"""Fixtures with the stores that tests of this folder share."""
_ORDER = (frozenset({QUIET}), frozenset({QUIET, KILLED}), frozenset({KILLED}), frozenset[str]())
"""Files by the shared stores that they use, in the order in which they run: so each store has an end."""
SHARED: dict[str, Stores] = {}
"""The stores that run in this process, by their fixtures."""
_users = pytest.StashKey[frozenset[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring files of this folder that use the same shared stores together."""
    here = [place for place, item in enumerate(items) if HERE in item.path.parents]
    used: dict[Path, frozenset[str]] = {}
    for place in here:
        names = getattr(items[place], "fixturenames", ())
        used[items[place].path] = used.get(items[place].path, frozenset()) | {QUIET, KILLED}.intersection(names)
    ordered = sorted((items[place] for place in here), key=lambda item: _ORDER.index(used[item.path]))
    for place, item in zip(here, ordered, strict=True):
        item.stash[_users] = used[item.path]
        items[place] = item


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the shared stores that no further file uses: a store at rest takes time from others."""
    wanted = frozenset[str]() if nextitem is None else nextitem.stash.get(_users, frozenset())
    codes = [known.drop() for name, known in SHARED.items() if name not in wanted]
    assert not any(codes), "a store did not end well"


@pytest.fixture(scope="session")
def quiet_stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Return the store whose services nobody kills."""
    return SHARED.setdefault(QUIET, Stores(tmp_path_factory, {}))


@pytest.fixture(scope="module")
def cluster(quiet_stores: Stores) -> Cluster:
    """A store that all tests share: leave its services alone."""
    return quiet_stores.running()


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Return the store of test files that kill services."""
    return SHARED.setdefault(KILLED, Stores(tmp_path_factory, QUICK))


@pytest.fixture
def own_cluster(stores: Stores, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A store whose services the test may kill. Others use it before and after it, unless the test fails.

    Settings and keys that a test changes have to be as they were in the end.
    """
    with stores.lent(request) as whole:
        yield whole


@pytest.fixture(scope="module")
def round_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Return the store of a file whose replicators begin a round each second."""
    rounds = {"SWIFTLET_REPLICATOR__INTERVAL_S": "1", "SWIFTLET_REPLICATOR__DATABASE_INTERVAL_S": "1"}
    stores = Stores(tmp_path_factory, rounds)
    yield stores
    assert stores.drop() == 0
