"""Encryption between services: what somebody on the wire sees, and a store in use that goes from mode to mode."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from swiftclient.client import Connection

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.test_keys import User
from swiftlet.main.commands.standalone.plan import NATIVE_PORT_OFFSET
from swiftlet.testing.packets import Sniffer

MODE = "SWIFTLET_CLUSTER__ENCRYPTION"
_SERVED_BY_STORE = ("object", "container")


@contextmanager
def sniffing(cluster: Cluster) -> Iterator[Sniffer]:
    ports = {urlsplit(s["url"]).port or 0 for name, s in cluster.services.items() if name.startswith(_SERVED_BY_STORE)}
    try:
        sniffer = Sniffer({*ports, *(port + NATIVE_PORT_OFFSET for port in ports)})
    except PermissionError:
        pytest.skip("only root may see what goes over the wire")
    sniffer.start()
    try:
        yield sniffer
    finally:
        sniffer.stop()


def connect(cluster: Cluster) -> Connection:
    return Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)


def status_of(cluster: Cluster, service: str) -> dict[str, dict[str, object]]:
    with urllib.request.urlopen(f"{cluster.management_url(service)}/statusz", timeout=5) as answer:
        found: dict[str, dict[str, object]] = json.load(answer)
        return found


def seen_on_the_wire(cluster: Cluster) -> dict[str, bool]:
    """Whether what belongs to users is to be seen between the services, by what it is."""
    mark = os.urandom(8).hex()
    small, large = os.urandom(5000).hex().encode(), os.urandom(1 << 20).hex().encode()
    texts = {kind: f"{kind}-{mark}" for kind in ("container", "name", "metadata")}
    client = connect(cluster)
    with sniffing(cluster) as sniffer:
        client.put_container(texts["container"])
        for name, body in ((texts["name"], small), (f"{texts['name']}-large", large)):
            headers = {"X-Object-Meta-Color": texts["metadata"]}
            client.put_object(texts["container"], name, body, headers=headers)
            assert client.get_object(texts["container"], name)[1] == body
        listed = [one["name"] for one in client.get_container(texts["container"])[1]]
        assert listed == [texts["name"], f"{texts['name']}-large"]
        client.post_object(texts["container"], texts["name"], {"X-Object-Meta-Color": texts["metadata"]})
        client.delete_object(texts["container"], texts["name"])
    client.close()
    heard = b"\n".join(packet.payload for packet in sniffer.heard)
    assert len(heard) > 2 << 20, "the bytes did not go over the wire"
    parts = {kind: text.encode() for kind, text in texts.items()}
    # Anywhere in them: where one segment ends and the next begins is not known.
    parts |= {"small body": small[3000:3200], "large body": large[500_000:500_200], "signature": b"Swiftlet-Signature"}
    return {kind: part in heard for kind, part in parts.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nobody_on_the_wire_sees_names_bytes_or_metadata(tmp_path: Path) -> None:
    # Too long a path for sockets: what is said within one machine goes over the wire, too.
    data = tmp_path / ("a" * 100)
    for mode in ("none", "required"):
        cluster = start_cluster(data, "--workers", "1", settings={MODE: mode})
        try:
            found = seen_on_the_wire(cluster)
            used = status_of(cluster, "proxy")["transports"]
        finally:
            assert cluster.stop() == 0
        # Without encryption all of it is there: whoever looks finds it.
        assert found == dict.fromkeys(found, mode == "none"), mode
        carriers = {"none": {"http", "tcp"}, "required": {"https", "tls"}}[mode]
        assert {name for name, count in used.items() if count} <= carriers
        assert used.get({"none": "tcp", "required": "tls"}[mode])


def domains(cluster: Cluster) -> list[list[str]]:
    """Services that are restarted together: those of each zone, then the others, the API server last."""
    zones: dict[str, list[str]] = {}
    for name in cluster.services:
        kind, _, number = name.rpartition("-")
        zones.setdefault(number if kind in _SERVED_BY_STORE else "", []).append(name)
    others = zones.pop("")
    return [*zones.values(), [name for name in others if name != "proxy"], ["proxy"]]


def restart_all(cluster: Cluster, mode: str, user: User) -> None:
    """A rolling restart into another mode, while the store is in use."""
    for name in cluster.services:
        cluster.set(name, cluster={"encryption": mode})
    for domain in domains(cluster):
        alone = domain == ["proxy"]
        if alone:
            # There is one here; in a cluster its clients would turn to another.
            user.pause()
        cluster.kill(*domain, number=signal.SIGTERM)
        cluster.start(*domain)
        if alone:
            user.resume()
        user.makes_progress()
    assert {status_of(cluster, name)["encryption"]["mode"] for name in cluster.services} == {mode}
    assert user.problems == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_store_in_use_changes_to_encryption_and_back(own_cluster: Cluster) -> None:
    client = connect(own_cluster)
    client.put_container("encrypted")
    user = User(client, "encrypted")
    user.start()
    try:
        for mode in ("accepted", "required"):
            restart_all(own_cluster, mode, user)
        # Now nobody is answered in plain text who asks for more than anybody may know.
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{own_cluster.url('object-1')}/v1/objects/d1/judge", data=b"{}", timeout=5)
        assert "https" in status_of(own_cluster, "proxy")["transports"]
        for mode in ("accepted", "none"):
            restart_all(own_cluster, mode, user)
    finally:
        user.resume()
        user.ended.set()
        user.join()
        client.close()
    assert user.problems == []
