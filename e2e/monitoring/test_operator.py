"""Alerts and panels about a cluster's conditions, driven by the operator's reconciler on a cluster that meets trouble.

The API server and the clock are simulated (`swiftlet_operator.tests.worlds`); what the reconciler tells of each minute
is recorded and evaluated as that of the services is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import generate_latest

from charts.dashboards import OPERATOR, OVERVIEW, Panel
from charts.tests.test_alerts_fire import operators_group, rules_of
from e2e.monitoring.evaluating import evaluate, expect, fires, has_data
from e2e.monitoring.recording import Recording, Target
from swiftlet_operator.build.alerts import ALERTS
from swiftlet_operator.kube import HttpKube
from swiftlet_operator.manifests import CLUSTER
from swiftlet_operator.metrics import LEADS, exported
from swiftlet_operator.plan.keys import MADE_AT
from swiftlet_operator.reconcile import Key
from swiftlet_operator.reports import EncryptionReport
from swiftlet_operator.tests.clusters import SPECS
from swiftlet_operator.tests.federations import Federation
from swiftlet_operator.tests.reporters import NEVER
from swiftlet_operator.tests.test_cordons import cordon
from swiftlet_operator.tests.test_lifecycle import ZONES, break_pod
from swiftlet_operator.tests.test_sealed_keys import with_recovery
from swiftlet_operator.tests.test_upgrades import bring_up
from swiftlet_operator.tests.test_why import not_ready
from swiftlet_operator.tests.troubles import waiting
from swiftlet_operator.tests.worlds import Scene, settled
from swiftlet_operator.workqueue import WorkQueue

METRICS = (
    "swiftlet_operator_condition",
    "swiftlet_operator_clusters",
    "swiftlet_operator_upgrade_timed_out",
    "swiftlet_operator_cluster_key_timestamp_seconds",
    "swiftlet_operator_leads",
    "swiftlet_operator_reconcile_seconds_count",
    "swiftlet_operator_reconcile_seconds_bucket",
    "swiftlet_operator_api_requests_total",
    "process_resident_memory_bytes",
)
VARIABLES = {"$namespace": "data", "$cluster": "store", "$__rate_interval": "5m"}
FIRING = 'ALERTS{alertstate="firing"}'
SPEC = {**yaml.safe_load(SPECS["three-zones"]), "encryption": "transport"}
ENCRYPTS = EncryptionReport("required", ready=True)
Act = Callable[[Scene], Awaitable[None] | None]
ENDS_AFTER = 40
"""So many minutes: what the operator counts is looked at over half an hour."""


async def _nothing() -> None:
    """Have no other operators."""


class Told:
    """Gathers what the operator exports, minute by minute, while its work queue reconciles a cluster.

    `others` is awaited at the end of each minute: what other operators do.
    """

    def __init__(self, scene: Scene, api: HttpKube, others: Callable[[], Awaitable[object]] = _nothing) -> None:
        self.scene = scene
        self._api = api
        self._others = others
        self._over = asyncio.Event()
        LEADS.set_function(lambda: float(scene.leads))
        labels = {"namespace": "data", "pod": "operator", "container": "operator", "job": "operator"}
        target = Target(labels, lambda: generate_latest().decode())
        self.recording = Recording(METRICS, [target], lambda: float(scene.now_s))

    async def _reconcile(self, key: Key) -> None:
        # The cluster is in a fake API server; what is counted of a real one's answers is counted here.
        try:
            await self._api.serves(CLUSTER)
            await self.scene.reconciler.reconcile(key)
        finally:
            asyncio.get_running_loop().call_soon(self._over.set)

    async def wait(self, minutes: int) -> int:
        """Reconcile in each of so many minutes; the last of them."""
        for _ in range(minutes):
            self.scene.now_s += 60
            self._over.clear()
            # One for each minute, as delays after failures are of this machine's time.
            queue = WorkQueue(self._reconcile, debounce_s=0.0)
            queue.add(self.scene.key)
            await self._over.wait()
            await queue.close()
            await self._others()
            self.recording.tick()
        return self.recording.minute


@pytest.fixture
def failing() -> set[str]:
    """Names of objects that the fake API server can't change; with any of them the one over HTTP refuses all."""
    return set()


@pytest.fixture
async def api(failing: set[str]) -> AsyncIterator[HttpKube]:
    """An API server that knows no kinds, over HTTP."""

    async def answer(_request: web.Request) -> web.Response:
        if failing:
            return web.Response(status=403)
        return web.json_response({"kind": "APIResourceList", "resources": []})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, ApiClient(Configuration(host=str(server.make_url("")))) as client:
        yield HttpKube(client, 5.0)


@pytest.fixture
async def told(api: HttpKube, failing: set[str]) -> AsyncIterator[Told]:
    """A cluster that has been at rest for some minutes."""
    scene = await settled(SPEC)
    _all_pods_encrypt(scene)
    with_recovery(scene)
    scene.kube.find("Secret", "store-keys")["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    scene.kube.failing = failing
    with exported(scene.clusters):
        found = Told(scene, api)
        await found.wait(5)
        yield found


@pytest.fixture
async def federation() -> Federation:
    """Two clusters with an operator each, the first of which leads."""
    federation = Federation("east", "west")
    await federation.settle()
    return federation


@pytest.fixture
async def leader(api: HttpKube, federation: Federation) -> AsyncIterator[Told]:
    """The leader, after some minutes at rest; the other cluster's operator works beside it."""
    scene = federation["east"]
    scene.told.encryption = lambda _: ENCRYPTS
    with_recovery(scene)

    async def other() -> None:
        federation["west"].now_s = scene.now_s
        await federation.step("west")

    with exported(scene.clusters):
        found = Told(scene, api, other)
        await found.wait(5)
        yield found


def _all_pods_encrypt(scene: Scene) -> None:
    """Pods have the containers of their templates, and say that they refuse peers that don't encrypt."""
    scene.told.encryption = lambda _: ENCRYPTS
    for (kind, _, name), one in list(scene.kube.objects.items()):
        if kind == "StatefulSet":
            for ordinal in range(one["spec"]["replicas"]):
                pod = scene.kube.find("Pod", f"{name}-{ordinal}")
                pod["spec"]["containers"] = one["spec"]["template"]["spec"]["containers"]


def _a_pod_takes_plain_text(scene: Scene) -> None:
    plain, name = EncryptionReport("accepted", ready=True), f"store-fast-{ZONES[0]}-0"
    scene.told.encryption = lambda pod: plain if pod == name else ENCRYPTS


def _volumes_have_an_older_copy(scene: Scene) -> None:
    scene.told.sealed_generation = 0


def _volumes_have_the_newest_copy(scene: Scene) -> None:
    scene.told.sealed_generation = NEVER


async def _done(act: Awaitable[None] | None) -> None:
    if act is not None:
        await act


def _no_pod_is_ready(scene: Scene) -> None:
    for zone in ZONES:
        break_pod(scene, f"store-fast-{zone}-0")


def _one_pod_is_not_ready(scene: Scene) -> None:
    break_pod(scene, f"store-fast-{ZONES[0]}-0")


def _all_is_ready(scene: Scene) -> None:
    scene.told.silent.clear()
    scene.live()


def _a_pod_has_no_image(scene: Scene) -> None:
    name = f"store-fast-{ZONES[0]}-0"
    break_pod(scene, name)
    not_ready(scene, name, containerStatuses=[waiting("ImagePullBackOff")])


def _all_pods_go_to_one_node(scene: Scene) -> None:
    for (kind, _, name), pod in scene.kube.objects.items():
        if kind == "Pod" and "-fast-" in name:
            pod["spec"]["nodeName"] = "n1"


async def _an_upgrade_to_a_bad_image(scene: Scene) -> None:
    scene.cluster["spec"]["upgrade"] = {"timeoutSeconds": 600}
    scene.cluster["spec"]["image"] = "swiftlet:bad"
    await scene.step()
    bring_up(scene, f"store-fast-{ZONES[0]}", ready=False, waiting="ImagePullBackOff")


async def _the_image_before(scene: Scene) -> None:
    del scene.cluster["spec"]["image"]
    await scene.step()
    bring_up(scene, f"store-fast-{ZONES[0]}", ready=True)


def _the_key_is_old(scene: Scene) -> None:
    keys = scene.kube.find("Secret", "store-keys")
    keys["metadata"]["annotations"][MADE_AT] = str(scene.now_s - 400 * 86_400)


def _another_key(scene: Scene) -> None:
    scene.cluster["spec"]["keys"] = {"generation": 2}


def _the_api_server_refuses(scene: Scene) -> None:
    scene.kube.failing.add("store")


def _the_api_server_takes_all(scene: Scene) -> None:
    scene.kube.failing.clear()


def _nobody_leads(scene: Scene) -> None:
    scene.leads = False


def _it_leads_again(scene: Scene) -> None:
    scene.leads = True


MODES: dict[str, tuple[tuple[str, ...], Act, Act, int]] = {
    "pods of all zones": (("SwiftletNotReady", "SwiftletRedundancyLost"), _no_pod_is_ready, _all_is_ready, 20),
    "a pod": (("SwiftletRedundancyLost",), _one_pod_is_not_ready, _all_is_ready, 20),
    "a pod without image": (
        ("SwiftletPodsUnhealthy", "SwiftletRedundancyLost"),
        _a_pod_has_no_image,
        _all_is_ready,
        20,
    ),
    "a cordon": (
        ("SwiftletNodesCordoned",),
        lambda scene: cordon(scene, "n1"),
        lambda scene: cordon(scene, "n1", on=False),
        130,
    ),
    "pods together": (("SwiftletReplicasTogether",), _all_pods_go_to_one_node, _all_is_ready, 40),
    "an upgrade": (
        ("SwiftletUpgradeTimedOut", "SwiftletPodsUnhealthy", "SwiftletRedundancyLost"),
        _an_upgrade_to_a_bad_image,
        _the_image_before,
        30,
    ),
    "an old key": (("SwiftletClusterKeyOld",), _the_key_is_old, _another_key, 70),
    "a pod in plain text": (("SwiftletTransportNotEncrypted",), _a_pod_takes_plain_text, _all_pods_encrypt, 130),
    "keys that are not sealed": (
        ("SwiftletKeysNotSealed",),
        _volumes_have_an_older_copy,
        _volumes_have_the_newest_copy,
        70,
    ),
    "the API server": (
        ("SwiftletOperatorStands", "SwiftletReconcileFails"),
        _the_api_server_refuses,
        _the_api_server_takes_all,
        60,
    ),
    "nobody leads": (("SwiftletOperatorSilent",), _nobody_leads, _it_leads_again, 20),
}
"""Trouble: the alerts that are for it, how it comes and goes, and the minutes until they fire."""
OF_A_FEDERATION = {one.name for one in ALERTS if one.only_with == "federation"}
"""The cluster is in none, so that its rules do not have them."""
RULES = [
    *(
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert") not in OF_A_FEDERATION]}
        for group in rules_of("store")
    ),
    operators_group("data", "operator"),
]


@pytest.mark.parametrize("mode", MODES)
async def test_alerts_fire_in_the_mode_that_they_are_for_and_end_after_it(
    told: Told, tmp_path: Path, mode: str
) -> None:
    alerts, comes, goes, lasts = MODES[mode]
    at_rest = told.recording.minute
    await _done(comes(told.scene))
    broken = await told.wait(lasts)
    await _done(goes(told.scene))
    told.scene.live()
    _all_pods_encrypt(told.scene)
    mended = await told.wait(ENDS_AFTER)
    checks = [expect(f"count({FIRING})", minute, None) for minute in (at_rest, mended)]
    checks += [fires(alert, broken) for alert in alerts]
    checks += [expect(f"count(count by (alertname) ({FIRING}))", broken, len(alerts))]
    evaluate(told.recording, tmp_path, RULES, checks)


FEDERATED = ("SwiftletFederationNotReady",)
"""The alerts that fire while another member of a federation can't be reached."""


async def test_an_alert_fires_while_a_member_of_the_federation_is_away_and_ends_after_it(
    leader: Told, federation: Federation, tmp_path: Path
) -> None:
    at_rest = leader.recording.minute
    federation.away.add("west")
    broken = await leader.wait(60)
    federation.away.clear()
    mended = await leader.wait(ENDS_AFTER)
    checks = [expect(f"count({FIRING})", minute, None) for minute in (at_rest, mended)]
    checks += [fires(alert, broken) for alert in FEDERATED]
    checks += [expect(f"count(count by (alertname) ({FIRING}))", broken, len(FEDERATED))]
    evaluate(leader.recording, tmp_path, rules_of("east"), checks)


PANELS = [
    panel
    for dashboard in (OVERVIEW, OPERATOR)
    for panel in dashboard.panels
    if dashboard is OPERATOR or any(f"{metric}{{" in panel.queries[0][0] for metric in METRICS)
]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
async def test_panels_about_clusters_have_data(told: Told, tmp_path: Path, panel: Panel) -> None:
    evaluate(told.recording, tmp_path, [], has_data(panel, VARIABLES, told.recording.minute))
