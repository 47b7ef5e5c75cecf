"""`kubectl swiftlet advise`: the load of a live cluster, its pitfalls, and what could not be read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from swiftlet.crd import parse_storage_cluster
from swiftlet_operator.plugin.main import main
from swiftlet_operator.tests.clusters import SPECS
from swiftlet_operator.tests.test_plugin import Fake, fake

__all__ = ["fake", "with_spec"]

PROXY = "/api/v1/namespaces/data/pods/https:store-proxy-x:8080/proxy/metrics"
SERVER = "/api/v1/namespaces/data/pods/http:store-disks-{}:6200/proxy/metrics"


def with_spec(fake: Fake, name: str = "minimal", **changes: Any) -> None:
    """Give the cluster a spec with all defaults, as the API server has it."""
    raw = {"metadata": {"name": "store"}, "spec": {**yaml.safe_load(SPECS[name]), **changes}}
    spec = parse_storage_cluster(raw).spec.model_dump(by_alias=True, mode="json", exclude_none=True)
    fake.find("StorageCluster", "store")["spec"] = spec
    for one in fake.state["objects"]:
        if one["kind"] == "StoragePolicy":
            one["spec"]["aggregateBelow"] = "1Mi"
    fake.write()


def page(gets: int, puts: int, received: int, sent: int) -> str:
    """Metrics of a proxy."""
    return (
        f'swiftlet_http_requests_total{{method="GET",service="proxy",status="200"}} {gets}\n'
        f'swiftlet_http_requests_total{{method="PUT",service="proxy",status="201"}} {puts}\n'
        f'swiftlet_http_received_bytes_total{{service="proxy"}} {received}\n'
        f'swiftlet_http_sent_bytes_total{{service="proxy"}} {sent}\n'
    )


def under_load(fake: Fake, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """Have the proxy tell of more, once somebody has waited."""
    fake.state["raw"][PROXY] = page(0, 0, 0, 0)
    fake.write()

    def later(seconds: float) -> None:
        assert seconds == 10
        fake.state["raw"][PROXY] = after
        fake.write()

    moments = iter([0.0, 10.0])
    monkeypatch.setattr("swiftlet_operator.plugin.advise.time.sleep", later)
    monkeypatch.setattr("swiftlet_operator.plugin.advise.time.monotonic", lambda: next(moments))


def test_the_load_is_watched_and_pitfalls_are_told(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spec(fake, proxy={"replicas": 1, "service": {"type": "NodePort"}})
    under_load(fake, monkeypatch, page(200_000, 1_000, 10_000_000, 2_000_000_000))
    assert main(["advise", "store", "--seconds", "10"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("StorageCluster store: ")
    assert "asked    create 100/s, read 20,000/s: 1 MB/s in, 200 MB/s out" in shown
    # 400 of 1000 bytes of each of three devices, in three copies.
    assert "stored   400 B" in shown
    assert "WARNING spec.proxy.replicas: one-proxy" in shown
    assert "WARNING spec.proxy.resources.requests.cpu: weak-proxies" in shown
    assert "Unit costs: measured" in shown


def test_a_multiple_of_the_load_takes_more(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spec(fake)
    under_load(fake, monkeypatch, page(100, 10, 1000, 1000))
    assert main(["advise", "--seconds", "10", "--times", "3"]) == 0
    assert "create 3/s, read 30/s" in capsys.readouterr().out


def test_a_cluster_at_rest_is_judged_by_its_proportions(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spec(fake)
    under_load(fake, monkeypatch, page(0, 0, 0, 0))
    assert main(["advise", "store", "--seconds", "10"]) == 0
    shown = capsys.readouterr().out
    assert "asked    nothing in this time" in shown
    assert "NOTE    spec.proxy.resources.requests.cpu: weak-proxies" in shown


def test_services_that_do_not_tell_are_named(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spec(fake)
    under_load(fake, monkeypatch, page(100, 0, 0, 1000))
    del fake.state["raw"][SERVER.format(1)]
    fake.write()
    assert main(["advise", "store", "--seconds", "10"]) == 0
    assert "the metrics of store-disks-1 (object) could not be read: " in capsys.readouterr().out


def test_without_any_proxy_s_metrics_it_says_so(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spec(fake)
    monkeypatch.setattr("swiftlet_operator.plugin.advise.time.sleep", lambda _: None)
    assert main(["advise", "store"]) == 1
    assert "error: metrics: no page of a proxy is among them" in capsys.readouterr().err


def test_a_spec_of_another_release_is_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("swiftlet_operator.plugin.advise.time.sleep", lambda _: None)
    assert main(["advise", "store"]) == 1
    assert "should be of one release" in capsys.readouterr().err


def test_numbers_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["advise", "--seconds", "0"])
    assert "'0' is no number above 0" in capsys.readouterr().err
