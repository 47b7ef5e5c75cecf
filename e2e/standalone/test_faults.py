"""What was acknowledged survives: an object server killed in the middle of hundreds of uploads."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.standalone.cluster import Cluster, environment
from e2e.standalone.wire import Answer, Client

UPLOADS = 500


def body_of(number: int) -> bytes:
    """Mostly small, some streamed: 1 KiB to 3 MiB."""
    chooser = random.Random(number)
    size = 3 << 20 if number % 25 == 0 else chooser.randrange(1 << 10, 100 << 10)
    return chooser.randbytes(size)


def test_sigkill_of_an_object_server_during_500_concurrent_puts(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    assert client.call("PUT", "kill").status == 201
    answered = threading.Semaphore(0)

    def upload(number: int) -> Answer:
        try:
            return client.call("PUT", f"kill/{number}", body=body_of(number))
        finally:
            answered.release()

    with ThreadPoolExecutor(max_workers=UPLOADS) as pool:
        uploads = [pool.submit(upload, number) for number in range(UPLOADS)]
        for _ in range(50):
            answered.acquire()
        own_cluster.kill("object-1")
        answers = [upload.result() for upload in uploads]

    statuses = {answer.status for answer in answers}
    assert statuses <= {201, 503}, statuses
    for answer in answers:
        if answer.status == 503:
            assert "replicas must answer" in answer.text, answer
    created = [number for number, answer in enumerate(answers) if answer.status == 201]
    assert len(created) > UPLOADS // 2
    for number in created:
        got = client.call("GET", f"kill/{number}")
        assert got.status == 200, number
        assert hashlib.sha256(got.body).digest() == hashlib.sha256(body_of(number)).digest(), number

    listed = {row["name"] for row in client.call("GET", "kill", query="format=json").json()}
    assert {str(number) for number in created} <= listed


def test_what_was_acknowledged_outlives_the_sudden_end_of_all_object_servers(
    own_cluster: Cluster,
) -> None:
    """Every copy is on a device whose server was killed: only what lies on the devices can answer afterwards."""
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    servers = [name for name in own_cluster.services if name.startswith("object-")]
    assert client.call("PUT", "all").status == 201
    for number in range(UPLOADS // 10):
        assert client.call("PUT", f"all/old-{number}", body=body_of(number)).status == 201
    answered = threading.Semaphore(0)

    def change(number: int) -> Answer:
        try:
            if number % 3 == 0:
                return client.call("DELETE", f"all/old-{number}")
            if number % 3 == 1:
                return client.call("PUT", f"all/old-{number}", body=body_of(number + 1))
            return client.call("PUT", f"all/new-{number}", body=body_of(number))
        finally:
            answered.release()

    with ThreadPoolExecutor(max_workers=20) as pool:
        changes = [pool.submit(change, number) for number in range(UPLOADS // 10)]
        for _ in range(20):
            answered.acquire()
        for server in servers:
            own_cluster.kill(server)
        answers = [change.result() for change in changes]
    own_cluster.start(*servers)
    for number, answer in enumerate(answers):
        # The newest of all copies: one that was not reached in time may still have the version before.
        old, new = (client.call("GET", f"all/{name}-{number}", {"X-Newest": "true"}) for name in ("old", "new"))
        done = answer.status in {201, 204}
        if number % 3 == 0:
            assert old.status == 404 if done else old.status == 404 or old.body == body_of(number), number
        elif number % 3 == 1:
            allowed = {body_of(number + 1)} if done else {body_of(number), body_of(number + 1)}
            assert old.body in allowed, number
        else:
            assert old.body == body_of(number)
            assert new.body == body_of(number) if done else new.status == 404 or new.body == body_of(number), number
    assert {answer.status for answer in answers} >= {201, 204}
    own_cluster.kill(*servers)
    for device in sorted((own_cluster.data / "devices").glob("d*")):
        check = [sys.executable, "-m", "swiftlet.main", "store", "check", "--data", str(device)]
        done_check = subprocess.run(check, env=environment(), capture_output=True, text=True, check=False)
        assert done_check.returncode == 0, done_check.stdout + done_check.stderr


def test_writes_go_on_and_come_home_after_a_server_was_away(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    client.call("PUT", "away")
    own_cluster.kill("object-2")
    bodies = {f"o{n}": random.Random(n).randbytes(5000) for n in range(40)}
    for name, body in bodies.items():
        assert client.call("PUT", f"away/{name}", body=body).status == 201
    client.call("DELETE", "away/o0")
    del bodies["o0"]
    own_cluster.start("object-2")
    own_cluster.kill("object-1")
    # With another server gone the returned one must serve what it missed, as far as the replicator has brought it,
    # and reads must find every object through the others in any case.
    for name, body in bodies.items():
        assert client.call("GET", f"away/{name}").body == body
    assert client.call("GET", "away/o0").status == 404


@pytest.mark.parametrize("service", ["container-1", "container-2"])
def test_listings_survive_the_loss_of_a_container_server(own_cluster: Cluster, service: str) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    container = f"lists-{service}"
    client.call("PUT", container)
    client.call("PUT", f"{container}/before", body=b"1")
    own_cluster.kill(service)
    assert client.call("PUT", f"{container}/during", body=b"2").status == 201
    deadline = time.monotonic() + 10
    while True:
        answer = client.call("GET", container)
        if answer.status == 200 and answer.text.splitlines() == ["before", "during"]:
            break
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def test_too_few_replicas_say_so_and_store_nothing_visible(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    client.call("PUT", "few")
    client.call("PUT", "few/kept", body=b"kept")
    own_cluster.kill("object-1", "object-2", "object-3")
    answer = client.call("PUT", "few/new", body=b"new")
    assert answer.status == 503
    assert "2 replicas must answer" in answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    own_cluster.start("object-1", "object-2", "object-3")
    assert client.call("GET", "few/kept").body == b"kept"
    assert client.call("PUT", "few/new", body=b"new").status == 201
