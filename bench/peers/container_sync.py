"""Container sync with OpenStack Swift, in both directions: are both listings the same, and do loops end?

    make peers-sync                                    # or, in a network namespace of its own:
    unshare --net .venv/bin/python -m bench.peers.container_sync --objects 200

One real cluster of each kind. `bench/peers/prepare.sh` installs OpenStack Swift. Fails unless all is as it should be;
prints a table of what was copied and how long it took.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.micro import Measured, report
from bench.peers.openstack import KEY, PROXY_PORT, USER, OpenStack
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Answer, Client

_REALMS = "[us]\nkey = between operators\ncluster_openstack = http://127.0.0.1:{theirs}/v1/\n"
_OURS = "cluster_swiftlet = {endpoint}/v1/\n"
_USER_KEY = "between owners"
_INTERVAL_S = 1.0
_WITHIN_S = 120.0
_SHOWN = ("name", "last_modified", "bytes", "hash", "content_type")
_PORT = 8081


class Side:
    """A cluster with the containers of one account."""

    def __init__(self, name: str, endpoint: str, user: str, key: str) -> None:
        """Log in as `user`, `account:user`."""
        self.name = name
        self.client = Client(endpoint, user, key)

    def call(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"", query: str = ""
    ) -> Answer:
        """Return an answer that is no error."""
        answer = self.client.call(method, path, headers, body, query)
        assert 200 <= answer.status < 300, (self.name, method, path, answer)
        return answer

    def listed(self, container: str) -> list[dict[str, Any]]:
        """The rows of a listing: names, times, sizes, hashes and types."""
        rows = json.loads(self.call("GET", container, query="format=json").body or b"[]")
        return [{name: row[name] for name in _SHOWN} for row in rows]

    def copy_to(self, other: Side, container: str) -> None:
        """Have a container copied to the other cluster."""
        account = other.client.base.rsplit("/", 1)[1]
        place = f"//us/{other.name}/{account}/{container}"
        other.call("PUT", container, {"X-Container-Sync-Key": _USER_KEY})
        self.call("PUT", container, {"X-Container-Sync-To": place, "X-Container-Sync-Key": _USER_KEY})

    def fill(self, container: str, objects: int, prefix: str = "") -> None:
        """Store objects of all kinds that are copied."""
        self.call("PUT", container)
        for number in range(objects):
            body = f"{prefix}{number} ".encode() * (number % 50 + 1)
            headers = {"Content-Type": "text/x-bench", "X-Object-Meta-Number": str(number)}
            self.call("PUT", f"{container}/{prefix}{number:06}", headers, body)
        self.call("PUT", f"{container}/{prefix}größer 100%?#", {"Content-Type": "a/b"}, b"x" * 3_000_000)
        self.call("PUT", f"{container}/{prefix}segments/1", {"Content-Type": "a/b"}, b"a" * 1000)
        self.call("PUT", f"{container}/{prefix}segments/2", {"Content-Type": "a/b"}, b"b" * 1000)
        entries = [{"path": f"/{container}/{prefix}segments/{one}"} for one in (1, 2)]
        manifest, video = json.dumps(entries).encode(), {"Content-Type": "video/x"}
        self.call("PUT", f"{container}/{prefix}slo", video, manifest, "multipart-manifest=put")
        dynamic = {"X-Object-Manifest": f"{container}/{prefix}segments/", "Content-Type": "a/b"}
        self.call("PUT", f"{container}/{prefix}dlo", dynamic)
        target = {"X-Symlink-Target": f"{container}/{prefix}000001", "Content-Type": "a/link"}
        self.call("PUT", f"{container}/{prefix}link", target)
        etag = self.call("HEAD", f"{container}/{prefix}000001").headers["Etag"]
        self.call("PUT", f"{container}/{prefix}static", {**target, "X-Symlink-Target-Etag": etag})
        self.call("PUT", f"{container}/{prefix}gone", {}, b"x")
        self.call("PUT", f"{container}/{prefix}posted", {"Content-Type": "a/b"}, b"x")


def change(side: Side, container: str, prefix: str = "") -> None:
    """Change what has been copied."""
    side.call("DELETE", f"{container}/{prefix}gone")
    side.call("POST", f"{container}/{prefix}posted", {"X-Object-Meta-Color": "red"})
    side.call("PUT", f"{container}/{prefix}000000", {"Content-Type": "a/anew"}, b"anew")


def compare(one: Side, other: Side, container: str) -> None:
    """Fail unless both listings, and what can be read by them, are the same."""
    here, there = ({row["name"]: row for row in side.listed(container)} for side in (one, other))
    differing = [(here.get(name), there.get(name)) for name in here.keys() | there.keys()]
    # The hash in the listing of a large object, and the type of a link to it, are each cluster's own.
    differing = [(a, b) for a, b in differing if a is None or b is None or _plain(a) != _plain(b)]
    assert not differing, differing[:10]
    for name in here:
        bodies = [side.call("GET", f"{container}/{name}").body for side in (one, other)]
        assert bodies[0] == bodies[1], name


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("name", "last_modified", "content_type")}


def wait(holds: Callable[[], bool], what: str) -> float:
    """Wait, and return the seconds; fail after a while."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < _WITHIN_S, what
        time.sleep(0.2)
    return time.monotonic() - began


def names(side: Side, container: str) -> list[tuple[str, str]]:
    """Names and times, by which copies are compared."""
    return [(row["name"], row["last_modified"]) for row in side.listed(container)]


@dataclass(frozen=True)
class Row:
    """How long it took until all objects had been copied in a direction."""

    direction: str
    objects: int
    seconds: float

    def __str__(self) -> str:
        """A line of the table."""
        return f"| {self.direction} | {self.objects} | {self.seconds:.1f} |"


def run(theirs: Side, ours: Side, openstack: OpenStack, objects: int) -> list[Row]:
    """Copy in both directions; return the rows of the table."""
    rows = []
    theirs.fill("moved", objects)
    theirs.copy_to(ours, "moved")
    began = time.monotonic()
    openstack.sync_containers()
    openstack.sync_containers()
    rows.append(Row("OpenStack Swift to Swiftlet", len(theirs.listed("moved")), time.monotonic() - began))
    compare(theirs, ours, "moved")
    change(theirs, "moved")
    openstack.sync_containers()
    openstack.sync_containers()
    compare(theirs, ours, "moved")

    ours.fill("kept", objects)
    began = time.monotonic()
    ours.copy_to(theirs, "kept")
    wait(lambda: names(ours, "kept") == names(theirs, "kept"), "Swiftlet's objects are in OpenStack Swift")
    rows.append(Row("Swiftlet to OpenStack Swift", len(ours.listed("kept")), time.monotonic() - began))
    compare(ours, theirs, "kept")
    change(ours, "kept")
    wait(lambda: names(ours, "kept") == names(theirs, "kept"), "Swiftlet's changes are in OpenStack Swift")
    compare(ours, theirs, "kept")

    for side, other in ((ours, theirs), (theirs, ours)):
        side.copy_to(other, "both")
    ours.fill("both", 5, "ours-")
    theirs.fill("both", 5, "theirs-")
    began = time.monotonic()

    def same() -> bool:
        openstack.sync_containers()
        return names(ours, "both") == names(theirs, "both")

    wait(same, "both have all objects")
    change(ours, "both", "theirs-")
    change(theirs, "both", "ours-")
    wait(same, "both have all changes")
    rows.append(Row("both at once", len(ours.listed("both")), time.monotonic() - began))
    compare(ours, theirs, "both")
    before = names(ours, "both"), names(theirs, "both")
    for _ in range(3):
        said = openstack.sync_containers()
        assert "0 puts" in said or "puts: 0" in said, said[-2000:]
        time.sleep(2 * _INTERVAL_S)
    assert (names(ours, "both"), names(theirs, "both")) == before, "nothing moves any more"
    return rows


def _start(directory: Path, realms: Path) -> Cluster:
    realms.parent.mkdir(parents=True, exist_ok=True)
    endpoint = f"http://127.0.0.1:{_PORT}"
    realms.write_text(_REALMS.format(theirs=PROXY_PORT) + _OURS.format(endpoint=endpoint))
    settings = {"SWIFTLET_REALMS__FILE": str(realms), "SWIFTLET_CONTAINER_SYNC__INTERVAL_S": str(_INTERVAL_S)}
    return start_cluster(directory, port=_PORT, settings=settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=200, help="in each container that is copied one way")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench-peers/sync"), help="for both clusters")
    arguments = parser.parse_args()
    directory = arguments.directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    cluster = _start(directory / "ours", directory / "realms.conf")
    openstack = OpenStack(directory / "theirs", 1, 1, 4, realms=(directory / "realms.conf").read_text())
    try:
        openstack.start_storage(("object", "container", "account"))
        openstack.start_proxy()
        time.sleep(1)
        theirs = Side("openstack", f"http://127.0.0.1:{PROXY_PORT}", USER, KEY)
        ours = Side("swiftlet", cluster.endpoint, cluster.user, cluster.key)
        rows = run(theirs, ours, openstack, arguments.objects)
        print("| direction | objects | seconds |\n|---|---|---|\n" + "\n".join(map(str, rows)))
        report(
            "peers-sync", [Measured(f"{one.direction}, {one.objects:,} objects", "s", (one.seconds,)) for one in rows]
        )
    except BaseException:
        for log in sorted((directory / "theirs").glob("log*")):
            print(log.read_text(errors="replace")[-4000:])
        print(cluster.log("replicator")[-4000:])
        raise
    finally:
        openstack.stop()
        cluster.stop()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
