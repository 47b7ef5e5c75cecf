"""One store over two Kubernetes clusters, with pods in both: what goes in at one comes out at the other.

One federation for all tests of the module, in their order. The second cluster runs beside the first;
their pods reach each other by routes, and by names that each cluster's DNS servers ask the other's for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.federations import Member, new_federation, swift, wire_cut
from e2e.kubernetes.kube import Namespace, eventually
from e2e.kubernetes.lab import DONE_WITHIN_S, is_ready, lab_client, storage_pods
from swiftlet_operator.plugin.main import main

OBJECTS = 60
SIZES_BYTES = (0, 700, 10_000, 200_000, 3_000_000)
TOLD_WITHIN_S = 180
AT_REST_S = 60.0
"""Twice what an operator waits at most before it looks at the other members again."""
PORTS = {"storage": (6200, 7200), "container": (6300, 7300)}
"""Servers of devices listen at these, over HTTP and natively. Replicators, at 6400, tell states and metrics alone."""


@pytest.fixture(scope="module")
def members(operator: Namespace) -> Iterator[tuple[Member, Member]]:
    """The leader and the follower, Ready."""
    with new_federation(operator) as found:
        yield found


@pytest.fixture(scope="module")
def east(members: tuple[Member, Member]) -> Member:
    return members[0]


@pytest.fixture(scope="module")
def west(members: tuple[Member, Member]) -> Member:
    return members[1]


@pytest.fixture(scope="module")
def in_east(east: Member) -> Iterator[ClientPod]:
    """A client beside the leader's proxies."""
    with lab_client(east.namespace) as pod:
        yield pod


@pytest.fixture(scope="module")
def in_west(west: Member) -> Iterator[ClientPod]:
    """A client beside the follower's proxies."""
    with lab_client(west.namespace) as pod:
        yield pod


def both_are_well(east: Member, west: Member) -> str | None:
    """Return what is wrong in one of the two, by conditions and by the rings that are published."""
    if found := east.is_well() or west.is_well():
        return found
    ours, theirs = east.rings(), west.rings()
    return f"other rings in {[one for one in ours if ours[one] != theirs[one]]}" if ours != theirs else None


def status_of_store(member: Member, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `kubectl swiftlet status` shows."""
    if member.namespace.kubeconfig:
        monkeypatch.setenv("KUBECONFIG", member.namespace.kubeconfig)
    capsys.readouterr()
    assert main(["status", member.cluster, "--namespace", member.namespace.name]) == 0
    return capsys.readouterr().out


def names_of(prefix: str, count: int = OBJECTS) -> list[str]:
    return [f"{prefix}-{number}-{SIZES_BYTES[number % len(SIZES_BYTES)]}" for number in range(count)]


def test_the_follower_publishes_the_leader_s_rings(east: Member, west: Member) -> None:
    eventually("the same rings", DONE_WITHIN_S, lambda: both_are_well(east, west))
    assert east.versions() == west.versions()
    assert east.devices() == west.devices() == {"account": 4, "container": 4, "object-0": 4}


def test_what_is_stored_through_one_is_read_and_listed_through_the_other(
    in_east: ClientPod, in_west: ClientPod
) -> None:
    for here, there, prefix in ((in_east, in_west, "east"), (in_west, in_east, "west")):
        names = json.dumps(names_of(prefix))
        assert swift(here, _PUT, names) == OBJECTS
        assert swift(there, _GET, names) == []
    listings = [swift(pod, _LIST) for pod in (in_east, in_west)]
    assert listings[0] == listings[1]
    assert sorted(listings[0]) == sorted([*names_of("east"), *names_of("west")])


def test_connections_between_members_are_mutual_tls(east: Member, west: Member, in_west: ClientPod) -> None:
    """From the other cluster, where nothing keeps packets away: hack/cluster enforces no NetworkPolicies."""
    pods = {"storage": f"{east.cluster}-main-0", "container": f"{east.cluster}-container-0"}
    asked = [(east.host(pods[component], component), port) for component in pods for port in PORTS[component]]
    for (_, port), found in zip(asked, swift(in_west, _PROBE, json.dumps(asked)), strict=True):
        assert found["plain"][:12] in (*_CLOSED, "HTTP/1.1 401"), (port, found)
        assert found["certificate"], (port, found)
        assert found["anonymous"] in (*_CLOSED, "TLSV13_ALERT_CERTIFICATE_REQUIRED"), (port, found)
    for one in (east, west):
        assert one.condition("TransportEncrypted").startswith("True")


def test_the_status_tells_of_the_other_member(
    east: Member, west: Member, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = east.versions()

    def untold() -> str | None:
        """Each was told by the other at one of its last looks, so it may be late."""
        for one, other in ((east, west), (west, east)):
            found = one.namespace.get("storagecluster", one.cluster)["status"]["federation"]
            member = {"name": other.name, "heard": True, "leader": "east", "whole": True}
            if found != {"leader": "east", "members": [member | {"rings": versions, "used": versions}]}:
                return json.dumps(found)
        return None

    eventually("both tell of each other", TOLD_WITHIN_S, untold)
    for one, other in ((west, east), (east, west)):
        shown = status_of_store(one, monkeypatch, capsys)
        row = next(line.split() for line in shown.splitlines() if line.split()[:1] == [other.name])
        assert row[1:4] == ["yes", "yes", "east"], shown
        monkeypatch.undo()


def test_a_pod_of_the_follower_is_lost_and_comes_back(east: Member, west: Member, in_east: ClientPod) -> None:
    lost = f"{west.cluster}-main-1"
    before = west.namespace.get("pod", lost)["metadata"]["uid"]

    def back() -> str | None:
        pod = storage_pods(west.namespace).get(lost)
        is_new = pod is not None and is_ready(pod) and pod["metadata"]["uid"] != before
        return both_are_well(east, west) if is_new else f"{lost} is not back"

    versions = east.versions()
    with in_east.load() as load:
        west.namespace.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        eventually("the pod", DONE_WITHIN_S, back)
        load.finish()
    assert (east.versions(), west.versions()) == (versions, versions)


def test_the_leader_s_operator_is_away_and_a_new_pod_of_the_follower_joins_when_it_is_back(
    east: Member, west: Member, in_east: ClientPod, in_west: ClientPod
) -> None:
    versions, rings = east.versions(), east.rings()
    new = f"{west.cluster}-main-2"

    def new_pod() -> str | None:
        pod = storage_pods(west.namespace).get(new)
        return None if pod is not None and is_ready(pod) else f"{new} is not ready"

    east.operator.kubectl("scale", "deployment/swiftlet-operator", "--replicas=0")
    try:
        west.pool(replicas=3)
        with in_west.load() as load:
            eventually("the new pod", DONE_WITHIN_S, new_pod)
            # Long enough for the follower's operator to have looked at the leader several times.
            time.sleep(AT_REST_S)
            for here, there, prefix in ((in_east, in_west, "alone-east"), (in_west, in_east, "alone-west")):
                names = json.dumps(names_of(prefix, 10))
                assert swift(here, _PUT, names) == 10
                assert swift(there, _GET, names) == []
            assert (east.rings(), west.rings()) == (rings, rings)
            load.finish()
    finally:
        east.operator.kubectl("scale", "deployment/swiftlet-operator", "--replicas=1")

    def joined() -> str | None:
        if west.devices()["object-0"] != 5 or west.versions()["object-0"] <= versions["object-0"]:
            return f"{west.devices()} {west.versions()} {west.condition('FederationReady')}"
        return both_are_well(east, west)

    eventually("the new pod is in the rings of both", DONE_WITHIN_S, joined)


def test_the_clusters_do_not_reach_each_other_for_a_while(
    east: Member, west: Member, in_east: ClientPod, in_west: ClientPod
) -> None:
    """Each has a replica of everything, and serves it alone."""
    rings = east.rings()
    stored = json.dumps([*names_of("east"), *names_of("west")])

    def told(one: Member) -> str | None:
        found = one.condition("FederationReady")
        return None if found.startswith("False Unreachable") else found

    written = {}
    with wire_cut():
        for one in (east, west):
            eventually(f"{one.name} says so", TOLD_WITHIN_S, lambda one=one: told(one))  # type: ignore[misc]
        for pod, prefix in ((in_east, "cut-east"), (in_west, "cut-west")):
            assert swift(pod, _GET, stored) == []
            names = names_of(prefix, 10)
            written[prefix] = swift(pod, _TRY, json.dumps(names))
        assert (east.rings(), west.rings()) == (rings, rings)
    eventually("both are well", DONE_WITHIN_S, lambda: both_are_well(east, west))
    assert (east.rings(), west.rings()) == (rings, rings)
    for pod in (in_west, in_east):
        assert swift(pod, _GET, json.dumps([*written["cut-east"], *written["cut-west"]])) == []

    def listed() -> str | None:
        found = [swift(pod, _LIST) for pod in (in_east, in_west)]
        lacking = {*written["cut-east"], *written["cut-west"]} - set(found[0])
        return f"{sorted(lacking)} are not listed" if lacking or found[0] != found[1] else None

    eventually("the same listings", DONE_WITHIN_S, listed)
    print("stored while cut off:", {prefix: len(names) for prefix, names in written.items()})


_PUT = """
swift.put_container("things")
names = json.loads(sys.argv[1])
for name in names:
    etag = swift.put_object("things", name, content(name))
    assert etag == hashlib.md5(content(name), usedforsecurity=False).hexdigest(), name
print(len(names))
"""
_TRY = """
from swiftclient.exceptions import ClientException
stored = []
for name in json.loads(sys.argv[1]):
    try:
        swift.put_object("things", name, content(name))
    except ClientException as error:
        print(name, error, file=sys.stderr)
    else:
        stored.append(name)
print(json.dumps(stored))
"""
_GET = """
names = json.loads(sys.argv[1])
print(json.dumps([name for name in names if swift.get_object("things", name)[1] != content(name)]))
"""
_LIST = """
print(json.dumps({one["name"]: one["hash"] for one in swift.get_container("things", full_listing=True)[1]}))
"""
_CLOSED = ("closed", "reset")
_PROBE = """
import socket, ssl

REQUEST = b"GET /d0/0/AUTH_science/things/thing HTTP/1.1\\r\\nHost: swiftlet\\r\\nConnection: close\\r\\n\\r\\n"

def plain(address):
    with socket.create_connection(address, 10) as connection:
        connection.sendall(REQUEST)
        try:
            return connection.recv(100).decode("latin-1") or "closed"
        except ConnectionResetError:
            return "reset"

def anonymous(address, found):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(address, 10) as connection, context.wrap_socket(connection) as secured:
            found["certificate"] = len(secured.getpeercert(binary_form=True))
            secured.sendall(REQUEST)
            return secured.recv(100).decode("latin-1") or "closed"
    except ssl.SSLError as error:
        return error.reason
    except ConnectionResetError:
        return "reset"

report = []
for host, port in json.loads(sys.argv[1]):
    found = {"plain": plain((host, port)), "certificate": 0}
    found["anonymous"] = anonymous((host, port), found)
    report.append(found)
print(json.dumps(report))
"""
