"""The embedded Redis: its password and certificate, a real server with its configuration, and what people are told."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from swiftlet.testing.ports import free_ports
from swiftlet_operator.build.redis import CONFIGURATION, build_redis, build_redis_secret, configuration
from swiftlet_operator.build.settings import TLS_DIRECTORY
from swiftlet_operator.manifests import RESTART_DIGEST, Manifest
from swiftlet_operator.plan.again import LOOK_AGAIN_S, TROUBLED_S
from swiftlet_operator.plugin.findings import WARNING, findings
from swiftlet_operator.plugin.picture import Picture
from swiftlet_operator.reports import RedisReport, parse_report
from swiftlet_operator.tests.clusters import site
from swiftlet_operator.tests.worlds import KEY, Scene, settled

PASSWORD = "no-one-else-has-this-password-0123456789"
REFUSED = RedisReport("away", "AuthenticationFailed", "invalid username-password pair or user is disabled.")


def entries(scene: Scene) -> dict[str, str]:
    data = scene.kube.find("Secret", "store-redis")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def redis_digest(scene: Scene) -> str:
    template = scene.kube.find("StatefulSet", "store-redis")["spec"]["template"]
    return str(template["metadata"]["annotations"][RESTART_DIGEST])


def data_templates(scene: Scene) -> list[Manifest]:
    return [scene.kube.find("StatefulSet", name)["spec"]["template"] for name in ("store-disks", "store-container")]


async def test_the_password_is_made_once_and_is_nowhere_but_in_the_secret() -> None:
    scene = await settled()
    password = entries(scene)["password"]
    assert f"requirepass {password}\n" in entries(scene)["redis.conf"]
    others = [one for key, one in scene.kube.objects.items() if key[0] != "Secret"]
    assert password not in json.dumps(others, default=str)
    assert await scene.step() == []
    assert entries(scene)["password"] == password


@pytest.mark.parametrize("damage", [None, "", "bm90IG91cnM=", "?", "IiIgb3IgdHdvIGxpbmVzCnBvcnQgMQ=="])
async def test_another_password_starts_redis_anew_and_no_pod_with_data(damage: str | None) -> None:
    scene = await settled()
    before, digest, templates = entries(scene), redis_digest(scene), json.dumps(data_templates(scene))
    if damage is None:
        del scene.kube.objects["Secret", "data", "store-redis"]
    else:
        scene.kube.find("Secret", "store-redis")["data"]["password"] = damage
    await scene.step()

    after = entries(scene)
    assert after["password"] != before["password"]
    assert len(after["password"]) >= 24
    assert f"requirepass {after['password']}\n" in after["redis.conf"]
    assert redis_digest(scene) != digest
    assert json.dumps(data_templates(scene)) == templates
    assert await scene.step() == []


async def test_a_configuration_that_somebody_edits_is_put_right() -> None:
    scene = await settled()
    before = entries(scene)
    scene.kube.find("Secret", "store-redis")["data"]["redis.conf"] = base64.b64encode(b"protected-mode no").decode()
    await scene.step()
    assert entries(scene) == before


async def test_the_failure_table_is_shared_when_all_say_so() -> None:
    scene = await settled()
    assert scene.condition("FailureTableShared") == ("True", "Shared")
    scene.told.redis["store-disks-0"] = REFUSED
    await scene.step()

    assert scene.condition("FailureTableShared") == ("False", "AuthenticationFailed")
    said = scene.message("FailureTableShared")
    assert REFUSED.message in said
    assert "store-disks-0" in said
    assert "nothing else is lost" in said
    assert "Secret store-redis" in said
    assert scene.condition("Ready")[0] == "True"
    picture = Picture(scene.cluster)
    found = [one for one in findings(picture) if "FailureTableShared" in one.text]
    assert [one.severity for one in found] == [WARNING]
    assert REFUSED.message in found[0].text


@pytest.mark.parametrize("paused", [False, True])
async def test_a_server_that_is_back_is_seen_soon_though_no_event_tells_of_it(paused: bool) -> None:
    scene = await settled()
    scene.cluster["spec"]["paused"] = paused
    assert await scene.reconciler.reconcile(KEY) == LOOK_AGAIN_S
    scene.told.redis["store-disks-0"] = REFUSED
    again_in_s = await scene.reconciler.reconcile(KEY)
    assert again_in_s is not None
    assert again_in_s <= TROUBLED_S


@pytest.mark.parametrize(
    ("report", "field"),
    [
        (REFUSED, "spec.redis.passwordSecretRef"),
        (RedisReport("away", "Unreachable", "Error 111"), "spec.redis.address"),
        (RedisReport("away", "TLSFailed", "certificate verify failed"), "spec.redis.tls"),
    ],
)
async def test_the_field_of_an_external_redis_is_named(report: RedisReport, field: str) -> None:
    scene = await settled("external-redis")
    scene.told.redis["store-disks-1"] = report
    await scene.step()
    assert scene.condition("FailureTableShared") == ("False", report.reason)
    assert field in scene.message("FailureTableShared")


async def test_before_anything_is_known_nothing_is_wrong() -> None:
    scene = Scene()
    await scene.step()
    assert scene.condition("FailureTableShared") == ("Unknown", "NotReported")
    scene.live()
    for pod in ("store-disks-0", "store-disks-1", "store-disks-2", *(f"store-container-{n}" for n in range(3))):
        scene.told.redis[pod] = RedisReport("away")
    await scene.step()
    assert scene.condition("FailureTableShared") == ("Unknown", "NotReported")
    for pod in scene.told.redis:
        scene.told.redis[pod] = RedisReport("away", "Unreachable", "Error 111")
    scene.kube.find("StatefulSet", "store-redis")["status"] = {"readyReplicas": 0}
    scene.now_s = 1_800_000_100
    await scene.step()
    assert scene.condition("FailureTableShared") == ("Unknown", "Starting")
    scene.now_s += 700
    await scene.step()
    assert scene.condition("FailureTableShared") == ("False", "Unreachable")


async def test_where_there_is_no_redis_that_is_said_and_is_no_trouble() -> None:
    scene = await settled()
    for pod in (*(f"store-disks-{n}" for n in range(3)), *(f"store-container-{n}" for n in range(3))):
        scene.told.redis[pod] = RedisReport(None)
    await scene.step()
    assert scene.condition("FailureTableShared") == ("False", "NotUsed")
    assert not [one for one in findings(Picture(scene.cluster)) if "FailureTable" in one.text]


def test_what_a_replicator_reports() -> None:
    def redis_of(failures: object) -> RedisReport | None:
        report = parse_report("replicator", json.dumps({"service": "replicator", "failures": failures}).encode())
        assert report is not None
        return report.redis

    problem = {"reason": "Refused", "message": "no"}
    assert redis_of({"redis": "away", "redisProblem": problem}) == RedisReport("away", "Refused", "no")
    assert redis_of({"redis": "up", "redisProblem": None}) == RedisReport("up")
    assert redis_of({"redis": None}) == RedisReport(None)
    assert redis_of({"redis": "up", "redisProblem": 7}) == RedisReport("up")
    assert redis_of({"redis": 7}) is redis_of({}) is redis_of([]) is None


@contextmanager
def started(spec: str, root: Path) -> Iterator[int]:
    """A real server, started by the pod's own command with the Secret's own configuration, in other places."""
    made = site(spec)
    [port] = free_ports(1)
    text = base64.b64decode(build_redis_secret(made, PASSWORD)["data"][CONFIGURATION]).decode()
    assert text == configuration(made, PASSWORD)
    file = root / CONFIGURATION
    text = (
        text.replace("dir /data", f"dir {root}").replace(TLS_DIRECTORY, str(root)).replace("port 6379", f"port {port}")
    )
    file.write_text(text)
    container = build_redis(made)[0]["spec"]["template"]["spec"]["containers"][0]
    assert PASSWORD not in yaml.safe_dump(container)
    command = [word.replace("/etc/swiftlet/redis/redis.conf", str(file)) for word in container["command"]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "the server refuses the configuration"
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield port
    finally:
        process.kill()
        process.wait()


def answer(port: int, *words: str) -> str:
    usual = ["redis-cli", "--no-auth-warning", "-p", str(port)]
    return subprocess.run([*usual, *words], capture_output=True, text=True, timeout=10, check=False).stdout.strip()


def test_a_real_server_takes_the_configuration_and_wants_the_password(tmp_path: Path) -> None:
    with started("minimal", tmp_path) as port:
        assert "NOAUTH" in answer(port, "PING")
        assert answer(port, "-a", PASSWORD, "PING") == "PONG"
        assert answer(port, "-a", PASSWORD, "CONFIG", "GET", "protected-mode").split()[-1] == "yes"
        assert answer(port, "-a", PASSWORD, "CONFIG", "GET", "bind").split()[-1] != "127.0.0.1"


def test_a_real_server_speaks_tls_with_the_cluster_s_certificate(tmp_path: Path) -> None:
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=objects"
    files = ["-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
    subprocess.run([*made.split(), *files], check=True, capture_output=True)
    with started("tls", tmp_path) as port:
        secure = ("--tls", "--cacert", str(tmp_path / "tls.crt"), "-a", PASSWORD)
        assert answer(port, *secure, "PING") == "PONG"
        assert answer(port, "-a", PASSWORD, "PING") != "PONG"
