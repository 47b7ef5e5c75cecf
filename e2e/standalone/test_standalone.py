"""The local store itself: what survives a stop, how it stops, and what its processes do when one of them is hurt."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from e2e.standalone.cluster import SOURCES, Cluster, start_cluster
from e2e.standalone.wire import Client

STARTED = """
import sys, time
from pathlib import Path
from e2e.standalone.cluster import start_cluster
store = start_cluster(Path(sys.argv[1]))
store.kill("object-1")
store.start("object-1")
print(store.process.pid, *store.pids.values(), flush=True)
time.sleep(600)
"""


def test_stop_leaves_nothing_running_and_a_second_start_keeps_data_and_secrets(tmp_path: Path) -> None:
    first = start_cluster(tmp_path / "store", "--user", "acme:alice", "--key", "wonderland")
    assert (first.user, first.key) == ("acme:alice", "wonderland")
    client = Client(first.endpoint, first.user, first.key)
    assert client.call("PUT", "kept").status == 201
    assert client.call("PUT", "kept/o", body=b"still here").status == 201
    processes = [psutil.Process(first.process.pid), *psutil.Process(first.process.pid).children(recursive=True)]
    command = [sys.executable, "-m", "swiftlet.main", "standalone", "--data", str(first.data)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "already running" in again.stderr
    stopped = subprocess.run([*command, "--stop"], env=environment, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert first.process.wait(10) == 0
    assert not any(process.is_running() for process in processes)
    private = [path for path in (first.data / "etc").iterdir() if stat.S_IMODE(path.stat().st_mode) != 0o600]
    assert private == []

    # Started by a test run that is killed in the end: the store goes with it.
    run = subprocess.Popen(
        [sys.executable, "-c", STARTED, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(SOURCES.parent)])},
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    started = [psutil.Process(int(pid)) for pid in run.stdout.readline().split()]
    assert len(started) > 5
    second = json.loads((first.data / "ready.json").read_text())
    assert second["services"]["object-1"]["port"] != first.services["object-1"]["port"]
    assert (second["user"], second["key"]) == (first.user, first.key)
    client = Client(second["endpoint"], first.user, first.key)
    assert client.call("GET", "kept/o").body == b"still here"
    assert client.call("GET", "kept").text == "o\n"
    run.kill()
    run.wait(10)
    run.stdout.close()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive


def test_a_crashed_api_worker_is_replaced(own_cluster: Cluster) -> None:
    client = Client(own_cluster.endpoint, own_cluster.user, own_cluster.key)
    assert client.call("PUT", "c").status == 201
    proxy = psutil.Process(own_cluster.pids["proxy"])
    workers = proxy.children()
    assert len(workers) == 2
    workers[0].send_signal(signal.SIGKILL)
    # Connections that the kernel gave to the dead worker wait for its successor.
    for number in range(20):
        assert Client(own_cluster.endpoint, own_cluster.user, own_cluster.key).call("PUT", f"c/{number}").status == 201
    assert len(proxy.children()) == 2


def test_the_metadata_server_knows_where_objects_are(cluster: Cluster) -> None:
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    client.call("PUT", "located")
    login = urllib.request.Request(cluster.auth_url, headers={"X-Auth-User": cluster.user, "X-Auth-Key": cluster.key})
    with urllib.request.urlopen(login) as answer:
        token = answer.headers["X-Auth-Token"]
        account = answer.headers["X-Storage-Url"].rpartition("/")[2]
    url = f"{cluster.url('metadata')}/v1/locations/{account}/located/o"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"X-Auth-Token": token})) as answer:
        told = json.load(answer)
    ports = {service["port"] for name, service in cluster.services.items() if name.startswith("object")}
    assert len({device["zone"] for device in told["primaries"]}) == 3
    assert {device["port"] for device in told["primaries"] + told["handoffs"]} == ports
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url)
