"""What others are asked for, and what is told of it: cert-manager's certificate, Ingress, route, scaled proxies."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.main.tests.certificates import make_pair
from swiftlet_operator.build.certificate import go_duration
from swiftlet_operator.build.secrets import auth_url, endpoint
from swiftlet_operator.build.settings import settings_of
from swiftlet_operator.tests.clusters import site
from swiftlet_operator.tests.worlds import KEY, Scene

ISSUER = {"issuerRef": {"name": "ours"}}
POOL = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}


def asking(**spec: Any) -> dict[str, Any]:
    return {"pools": [POOL], **spec}


def with_cert_manager(spec: str | dict[str, Any]) -> Scene:
    scene = Scene(spec)
    scene.kube.unknown.discard("cert-manager.io")
    return scene


def issue(scene: Scene, directory: Path, name: str = "store-tls") -> None:
    """What cert-manager does, or a person for a Secret of another name."""
    pair = make_pair(directory, name)
    data = {"tls.crt": base64.b64encode(pair.cert).decode(), "tls.key": base64.b64encode(pair.key).decode()}
    metadata = {"name": name, "namespace": "data"}
    scene.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    if name == "store-tls":
        told(scene, status="True", reason="Ready", message="valid")
        scene.kube.find("Certificate", name)["status"]["notAfter"] = "2027-04-15T08:00:00Z"


def told(scene: Scene, **words: str) -> None:
    """What cert-manager says of the Certificate."""
    scene.kube.find("Certificate", "store-tls")["status"] = {"conditions": [{"type": "Ready", **words}]}


def volumes(scene: Scene) -> set[str]:
    pod = scene.kube.find("Deployment", "store-proxy")["spec"]["template"]["spec"]
    return {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}


async def test_a_new_cluster_begins_while_its_certificate_is_being_made(tmp_path: Path) -> None:
    scene = with_cert_manager(asking(tls={"certManager": ISSUER}))
    await scene.step()
    assert scene.kube.find("Certificate", "store-tls")["spec"]["secretName"] == "store-tls"
    assert "store-disks" in scene.kube.names("StatefulSet")
    assert scene.condition("SpecValid") == ("False", "CertificateNotIssued")
    assert scene.condition("CertificateReady") == ("False", "NotRequested")
    assert not [one for one in scene.kube.objects.values() if one["kind"] == "Event" and one["type"] == "Warning"]

    scene.live()
    await scene.step()
    assert scene.condition("CertificateReady") == ("False", "Issuing")
    told(scene, status="False", reason="DoesNotExist", message='issuer "ours" not found')
    again = await scene.reconciler.reconcile(KEY)
    assert scene.condition("CertificateReady") == ("False", "DoesNotExist")
    assert 'issuer "ours" not found' in scene.message("CertificateReady")
    assert again is not None
    assert again <= 15

    issue(scene, tmp_path)
    await scene.settle()
    assert scene.condition("CertificateReady") == ("True", "Issued")
    assert scene.message("CertificateReady") == "Certificate store-tls is valid until 2027-04-15T08:00:00Z"
    assert scene.condition("Ready") == ("True", "Available")
    assert scene.cluster["status"]["endpoint"] == "https://store.data.svc"


async def test_without_cert_manager_the_way_out_is_told(tmp_path: Path) -> None:
    scene = Scene(asking(tls={"certManager": ISSUER}))
    await scene.step()
    assert scene.condition("CertificateReady") == ("False", "CertManagerMissing")
    assert "Certificate" not in {one["kind"] for one in scene.kube.objects.values()}

    issue(scene, tmp_path, "mine")
    scene.cluster["spec"]["tls"] = {"secretRef": {"name": "mine"}}
    await scene.settle()
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert scene.condition("CertificateReady") == ("False", "NotWanted")
    assert "mine" in volumes(scene)


async def test_what_is_in_use_stays_until_the_certificate_is_there_and_the_other_way_round(tmp_path: Path) -> None:
    scene = with_cert_manager(asking(tls={"secretRef": {"name": "mine"}}))
    issue(scene, tmp_path, "mine")
    await scene.settle()
    assert scene.condition("Ready") == ("True", "Available")

    scene.cluster["spec"]["tls"] = {"certManager": ISSUER}
    await scene.step()
    assert "mine" in volumes(scene)
    assert scene.kube.names("Certificate") == {"store-tls"}
    assert scene.condition("SpecValid") == ("False", "CertificateNotIssued")
    assert "stay in force as they were accepted last" in scene.message("SpecValid")
    issue(scene, tmp_path)
    await scene.settle()
    assert "store-tls" in volumes(scene)
    assert "mine" not in volumes(scene)

    scene.cluster["spec"]["tls"] = {"secretRef": {"name": "gone"}}
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "TLSSecretMissing")
    assert "store-tls" in volumes(scene)
    assert scene.kube.names("Certificate") == {"store-tls"}, "what is in use is still renewed"

    scene.cluster["spec"]["tls"] = {"secretRef": {"name": "mine"}}
    await scene.settle()
    assert "mine" in volumes(scene)
    assert scene.kube.names("Certificate") == set()
    assert "store-tls" in scene.kube.names("Secret"), "cert-manager's Secrets are not ours to delete"


async def test_a_plain_api_stays_plain_until_the_certificate_is_there(tmp_path: Path) -> None:
    scene = with_cert_manager("minimal")
    await scene.settle()
    scene.cluster["spec"]["tls"] = {"certManager": ISSUER}
    await scene.step()
    assert scene.kube.find("Service", "store")["spec"]["ports"][0]["port"] == 80
    issue(scene, tmp_path)
    await scene.settle()
    assert scene.kube.find("Service", "store")["spec"]["ports"][0]["port"] == 443


async def test_no_pod_with_data_restarts_while_the_certificate_is_lost(tmp_path: Path) -> None:
    scene = with_cert_manager(asking(tls={"certManager": ISSUER}))
    await scene.step()
    issue(scene, tmp_path)
    await scene.settle()
    del scene.kube.objects["Secret", "data", "store-tls"]
    scene.cluster["spec"]["image"] = "swiftlet:2"
    written = await scene.step()
    assert not [one for one in written if one.startswith("apply StatefulSet/store-disks")]
    issue(scene, tmp_path)
    await scene.settle(12)
    pod = scene.kube.find("StatefulSet", "store-disks")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "swiftlet:2"


def test_a_certificate_is_for_all_names_of_the_api() -> None:
    spec = site("shaped").spec
    assert spec.proxy.hosts == ("objects.example.org", "swift.example.org", "o.example.org")


@pytest.mark.parametrize(
    ("text", "written"),
    [("2160h", "2160h0m0s"), ("90m", "1h30m0s"), ("1h30m", "1h30m0s"), ("300s", "5m0s"), ("45s", "45s")],
)
def test_durations_are_written_as_go_prints_them(text: str, written: str) -> None:
    assert go_duration(text) == written


async def test_the_endpoint_follows_the_ingress_and_credentials_tell_it() -> None:
    scene = Scene(asking())
    await scene.settle()
    assert scene.condition("APIExposed") == ("False", "NotWanted")
    before = settings(scene)["proxy"]
    assert "storage_url" not in before

    scene.cluster["spec"]["proxy"] = {"ingress": {"hosts": ["o.example.org"], "tlsSecretRef": {"name": "edge"}}}
    await scene.settle()
    assert scene.cluster["status"]["endpoint"] == "https://o.example.org"
    assert settings(scene)["proxy"]["storage_url"] == "https://o.example.org"
    assert scene.condition("APIExposed") == ("True", "Exposed")
    made = scene.kube.find("Ingress", "store")
    assert made["spec"]["tls"] == [{"hosts": ["o.example.org"], "secretName": "edge"}]

    scene.cluster["spec"]["proxy"] = {}
    await scene.settle()
    assert scene.kube.names("Ingress") == set()
    assert scene.cluster["status"]["endpoint"] == "http://store.data.svc"


def settings(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(scene.kube.find("ConfigMap", "store-settings")["data"]["settings.yaml"])
    return found


def test_what_the_spec_says_of_the_base_url_comes_first() -> None:
    assert endpoint(site("shaped")) == "https://objects.example.org"
    assert auth_url(site("shaped")) == "https://objects.example.org/auth/v1.0"
    assert settings_of(site("shaped"))["proxy"]["storage_url"] == "https://objects.example.org"
    assert settings_of(site("three-zones"))["proxy"]["storage_url"] == "https://objects.example.org"


async def test_a_route_waits_for_the_gateway_api_and_tells_what_the_gateway_says() -> None:
    route = {"parentRefs": [{"name": "edge"}], "hostnames": ["o.example.org"], "scheme": "http"}
    scene = Scene(asking(proxy={"route": route}))
    await scene.settle()
    assert scene.condition("APIExposed") == ("False", "GatewayAPIMissing")
    assert "set spec.proxy.ingress" in scene.message("APIExposed")
    assert scene.condition("Ready") == ("True", "Available")

    scene.kube.unknown.discard("gateway.networking.k8s.io")
    await scene.settle()
    assert scene.condition("APIExposed") == ("False", "NotAttached")
    assert scene.cluster["status"]["endpoint"] == "http://o.example.org"

    live = scene.kube.find("HTTPRoute", "store")
    assert live["spec"]["rules"] == [{"backendRefs": [{"name": "store", "port": 80}]}]
    refusal = {"type": "Accepted", "status": "False", "reason": "NotAllowedByListeners", "message": "no such host"}
    live["status"] = {"parents": [{"parentRef": {"name": "edge"}, "conditions": [refusal]}]}
    await scene.step()
    assert scene.condition("APIExposed") == ("False", "NotAllowedByListeners")
    assert "Gateway edge: no such host" in scene.message("APIExposed")

    refusal.update(status="True", reason="Accepted")
    live = scene.kube.find("HTTPRoute", "store")
    live["status"] = {"parents": [{"parentRef": {"name": "edge"}, "conditions": [refusal]}]}
    await scene.settle()
    assert scene.condition("APIExposed") == ("True", "Exposed")


async def test_scale_knows_how_many_proxies_there_are() -> None:
    scene = Scene("minimal")
    await scene.settle()
    selector = "app.kubernetes.io/component=proxy,app.kubernetes.io/instance=store"
    assert scene.cluster["status"]["proxy"] == {"replicas": 0, "selector": selector}
    scene.kube.find("Deployment", "store-proxy")["status"] = {"replicas": 2, "readyReplicas": 2}
    await scene.step()
    assert scene.cluster["status"]["proxy"]["replicas"] == 2
    labels = scene.kube.find("Deployment", "store-proxy")["spec"]["template"]["metadata"]["labels"]
    assert {tuple(pair.split("=")) for pair in selector.split(",")} <= set(labels.items())
