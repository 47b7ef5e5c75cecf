"""Every process of a store is killed under load that the native front answers, and that goes to the devices directly:
nothing acknowledged is lost.

While that goes on no read may show anything that the acknowledged operations do not allow. Within `LISTED_WITHIN_S`
after the last fault listings have all objects there are and no other name; after what is pending was delivered and two
rounds everything agrees on every replica, and the listing audit finds nothing. One of the accounts has a precise quota:
its totals are exact, and all of its room can be used.

`SEED` chooses what is done and killed, `KILLS` how often (`make hot-kills`): after each `EPISODE` everything is
checked, and the next one goes on from there.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kills.direct_clients import DirectWorker
from e2e.kills.hot_clients import HotWorker, hot_model
from e2e.kills.hot_kills import KINDS, Killer
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.model_checks import Checks, settle, wait_until
from e2e.standalone.model_clients import Model, make_containers
from e2e.standalone.power import Power
from e2e.standalone.test_tls import TlsProxy
from e2e.standalone.threads import at_work
from e2e.standalone.wire import Client
from swiftlet.auth.users import hash_secret
from swiftlet.sync.failures.tests.redis_server import RedisServer

SEED = int(os.environ.get("SEED", "1"))
KILLS = int(os.environ.get("KILLS", str(len(KINDS))))
"""Processes that are killed, at least."""
EPISODE = 50
"""Kills between two checks."""
CLIENTS = 3
"""How many clients work on each account through each proxy, and directly."""
PAUSE_S = 0.02
LISTED_WITHIN_S = 30.0
ASKED = 20
"""Status reports that are asked for, so that each of two workers gives some of them."""
CLAIMS_END_S = 180.0
"""Seconds after which the claim of a write expires whose outcome is unknown: twice `proxy.client_timeout_s`, and 60."""
ROOM = 20
"""Objects for which an account is given room in the end."""
LIMITED = "limited"
LIMITED_KEY = "the key of the account with a quota"
ROOMY = {"account_object_count": 1_000_000, "account_usage_bytes": 1 << 50}


@dataclass
class Store:
    """A store with two proxies, two accounts and the failure table."""

    cluster: Cluster
    https: TlsProxy
    redis: RedisServer
    power: Power
    quotas: Path
    tenants: list[tuple[Client, Model]]
    logins: list[tuple[str, str]]

    def limit(self, limits: dict[str, int]) -> None:
        """Limit what the second account may have, by writing the file anew as Kubernetes does."""
        levels = {"default": {}, "limited": limits}
        told = {"precise": True, "levels": levels, "assignments": {LIMITED: "limited"}}
        _put(self.quotas, told)


@contextmanager
def _store(root: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        redis = RedisServer(root)
        redis.start()
        stack.callback(redis.kill)
        quotas = root / "quotas.yaml"
        settings = {
            "SWIFTLET_CLUSTER__DIRECT_ACCESS": "true",
            "SWIFTLET_PROXY__FRONT": "true",
            "SWIFTLET_PROXY__FRONT_PUT": "true",
            "SWIFTLET_REDIS__URL": redis.url,
            "SWIFTLET_QUOTA__FILE": str(quotas),
            "SWIFTLET_QUOTA__CHECK_INTERVAL_S": "0.5",
        }
        power = Power(root)
        settings |= power.settings
        running = Store(None, None, redis, power, quotas, [], [])  # type: ignore[arg-type]
        running.limit(ROOMY)
        running.cluster = cluster = start_cluster(root / "store", "--workers", "2", settings=settings)
        stack.callback(cluster.stop)
        users = cluster.data / "etc" / "users.yaml"
        user = {"account": LIMITED, "user": "u", "roles": ["admin"], "secret_hash": hash_secret(LIMITED_KEY)}
        _put(users, [*yaml.safe_load(users.read_text()), user])
        cluster.kill("proxy", "metadata")
        cluster.start("proxy", "metadata")
        running.https = TlsProxy(cluster, root, workers=2)
        stack.callback(running.https.stop)
        names = ((cluster.user, cluster.key, "hot"), (f"{LIMITED}:u", LIMITED_KEY, "limited"))
        running.logins = [(user, key) for user, key, _ in names]
        running.tenants = [(Client(cluster.endpoint, user, key), hot_model(prefix)) for user, key, prefix in names]
        yield running


def _put(path: Path, document: object) -> None:
    aside = path.with_suffix(".new")
    aside.write_text(yaml.safe_dump(document))
    aside.rename(path)


def _status(url: str) -> dict[str, Any]:
    """The status report of one of a proxy's workers, who share the port."""
    with urllib.request.urlopen(f"{url}/statusz", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _answered(url: str) -> int:
    """Requests that the front of a worker has answered since it was started."""
    return int(_status(url)["front"]["answered"])


def _quotas(url: str) -> str:
    """The version of the quota file that a worker goes by."""
    return str(_status(url)["quotas"])


def _disturbed(store: Store, killer: Killer, chooser: random.Random, kills: int) -> None:
    """So many kills at least under load, and then load until both fronts answer again."""
    workers: list[HotWorker] = [
        HotWorker(client, model, random.Random(chooser.random()), endpoint, trust)
        for client, model in store.tenants
        for endpoint, trust in ((client.endpoint, None), (store.https.url, store.https.context()))
        for _ in range(CLIENTS)
    ]
    direct = [
        DirectWorker(client, model, random.Random(chooser.random()), user, key, store.cluster.url("metadata"))
        for (client, model), (user, key) in zip(store.tenants, store.logins, strict=True)
        for _ in range(CLIENTS)
    ]
    workers += direct
    wanted = killer.kills + kills
    urls = (store.cluster.management_url("proxy"), f"http://127.0.0.1:{store.https.management_port}")
    with at_work([worker.step for worker in workers], PAUSE_S) as over:
        while killer.kills < wanted and not over.wait(chooser.uniform(0.0, 1.0)):
            killer.step(over)
        if not over.is_set():
            wait_until(lambda: over.is_set() or all(_answered(url) > 0 for url in urls), "answers of both fronts")
    print(f"{sum(one.directly for one in direct)} of {sum(one.requests for one in direct)} went directly")
    assert all(one.directly for one in direct)
    for worker in workers:
        worker.close()


def _wrong_listings(client: Client, model: Model) -> list[str]:
    """Objects that there are and that are not listed, and what is listed and not there."""
    wrong: list[str] = []
    for container in model.containers:
        answer = client.call("GET", container)
        paths = [path for path in model.histories if path.startswith(f"{container}/")]
        found = {path: client.call("GET", path).status for path in paths}
        listed = {f"{container}/{name}" for name in answer.text.splitlines()}
        there = {path for path, status in found.items() if status == 200}
        wrong += [] if answer.status in {200, 204} else [f"{container} is {answer.status}"]
        wrong += [f"{path}: {found[path]}, listed: {path in listed}" for path in sorted(there ^ listed)]
        wrong += [f"{path}: {status}" for path, status in found.items() if status not in {200, 404}]
    return wrong


def _wait_until_listed(tenants: Sequence[tuple[Client, Model]]) -> float:
    """Wait until listings say what there is; the seconds it took."""
    begun = time.monotonic()
    for client, model in tenants:
        while wrong := _wrong_listings(client, model):
            assert time.monotonic() - begun < LISTED_WITHIN_S, f"after {LISTED_WITHIN_S:g} s: {wrong[:10]}"
            time.sleep(0.5)
    return time.monotonic() - begun


def _use_all_room(store: Store) -> None:
    """An account that is given room for some objects more can store so many, and not one more."""
    client, model = store.tenants[1]
    used = int(client.call("HEAD").headers["X-Account-Object-Count"])
    url = store.cluster.management_url("proxy")
    before = _quotas(url)
    store.limit(ROOMY | {"account_object_count": used + ROOM})
    stored: list[str] = []

    def is_full() -> bool:
        """Whether it is full; room for writes whose end nobody has learned of is held until their claims expire."""
        status = client.call("PUT", f"{model.containers[0]}/more-{len(stored)}", body=b"x").status
        assert status in {201, 413}, status
        if status == 201:
            stored.append(f"more-{len(stored)}")
        assert len(stored) <= ROOM, f"{len(stored)} objects where there was room for {ROOM}"
        return len(stored) == ROOM and status == 413

    wait_until(lambda: all(_quotas(url) != before for _ in range(ASKED)), "all workers to know the limit")
    wait_until(is_full, f"room for {ROOM} objects, and no more", CLAIMS_END_S + 30)
    for name in stored:
        assert client.call("DELETE", f"{model.containers[0]}/{name}").status == 204
    store.limit(ROOMY)


@pytest.mark.timeout(600 + 40 * KILLS)
def test_nothing_acknowledged_is_lost_whoever_is_killed_under_hot_load(tmp_path: Path) -> None:
    print(f"SEED={SEED} KILLS={KILLS}")
    chooser, begun = random.Random(SEED), time.monotonic()
    with _store(tmp_path) as store:
        killer = Killer(store.cluster, store.https, store.redis, store.power, chooser)
        for client, model in store.tenants:
            make_containers(client, model)
        try:
            while killer.kills < KILLS:
                _episode(store, killer, chooser, begun)
            _use_all_room(store)
        except BaseException as error:
            error.add_note(f"SEED={SEED} KILLS={KILLS} killed {dict(killer.killed)}, stopped {dict(killer.stopped)}")
            raise


def _episode(store: Store, killer: Killer, chooser: random.Random, begun: float) -> None:
    _disturbed(store, killer, chooser, min(EPISODE, KILLS - killer.kills))
    wrong = [one for _, model in store.tenants for one in model.wrong]
    assert wrong == [], f"{len(wrong)} answers are wrong: {wrong[:5]}"
    listed_s, ended = _wait_until_listed(store.tenants), time.monotonic()
    did = settle(store.cluster)
    for client, model in store.tenants:
        Checks(store.cluster, client, model).run()
    print(
        f"{time.monotonic() - begun:.0f} s: killed {dict(killer.killed)}, stopped {dict(killer.stopped)}, "
        f"{store.power.lost_bytes} bytes lost with the power; "
        f"{sum(model.written for _, model in store.tenants)} writes, "
        f"{sum(model.unanswered for _, model in store.tenants)} without an answer; listed after {listed_s:.1f} s, "
        f"rounds brought {[(one['pushed'], one['pulled']) for one in did]}, settled and checked in "
        f"{time.monotonic() - ended:.0f} s; {[dict(sorted(model.counts.items())) for _, model in store.tenants]}",
        flush=True,
    )
