"""What the front answers is logged and counted as what Python answers."""

from __future__ import annotations

import json
from pathlib import Path as Directory

import pytest
from prometheus_client import REGISTRY

from swiftlet.front.tests.conftest import fronted_proxy
from swiftlet.placement.tests.cluster import memory_cluster
from swiftlet.web.logs import configure_logging

_VARIES = {"duration_s", "request_id", "timestamp"}


def count(name: str, **labels: str) -> float:
    """Return what is counted of GETs."""
    return REGISTRY.get_sample_value(f"swiftlet_http_{name}", {"service": "proxy", "method": "GET", **labels}) or 0.0


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the lines of the access log since the last call."""
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    return [line for line in found if line["logger"] == "access" and "/v1/" in line["path"]]


async def test_both_log_and_count_alike(tmp_path: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    async with memory_cluster(tmp_path, devices=3) as cluster, fronted_proxy(cluster, tmp_path) as fronted:
        await cluster.make_container()
        assert (await fronted.proxy.call("PUT", "c/o", data=b"data")).status == 201
        await fronted.read()
        configure_logging("proxy")
        before = count("requests_total", status="200"), count("request_duration_seconds_count")
        # What is to be asked of several devices is Python's.
        assert (await fronted.proxy.call("GET", "c/o", {"X-Newest": "true"})).body == b"data"
        assert (await fronted.read()).body == b"data"
        await fronted.noted()
        found = lines(capsys)
        assert (count("requests_total", status="200"), count("request_duration_seconds_count")) == (
            before[0] + len(found),
            before[1] + len(found),
        )
        by_python, by_front = found[0], found[-1]
        assert by_front["path"] == "/v1/AUTH_test/c/o"
        assert list(by_python) == list(by_front)
        assert [by_python[name] for name in by_python if name not in _VARIES] == [
            by_front[name] for name in by_front if name not in _VARIES
        ]
        assert all(0 < float(str(line["duration_s"])) < 60 for line in found)
