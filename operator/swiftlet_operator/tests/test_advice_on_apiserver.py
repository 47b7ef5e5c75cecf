"""What a refusal advises can be done: each message of the checks is taken at its word before a real API server."""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from swiftlet_operator import checks, logins, regions
from swiftlet_operator.manifests import CLUSTER, POLICY, QUOTA, RING, SECRET, USER, Kind, Manifest
from swiftlet_operator.problems import KubeInvalid
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.test_reconcile_on_apiserver import Cluster, Counting, kube

__all__ = ["kube"]

pytestmark = pytest.mark.apiserver

POOL = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}
REFUSED_AT_ONCE = ("NoObjectPool", "RDMAResourceMissing", "PoolNameReserved", "NameTooLong")
"""The definitions have rules for these; the operator's checks are for definitions that are older than it is."""
EXEMPT = {
    # The API server refuses what the operator's view can't read, unless definitions and operator differ in age.
    "Unreadable",
}


class Case:
    """A cluster at rest, and what the cases do to it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.kube, self.namespace = cluster, cluster.kube, cluster.namespace
        self.kept: dict[str, Manifest] = {}

    async def edit(self, spec: dict[str, Any]) -> None:
        await self.kube.patch(CLUSTER, self.namespace, "store", {"spec": spec})

    async def make(self, kind: Kind, name: str, spec: dict[str, Any]) -> None:
        await self.kube.create(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"clusterRef": {"name": "store"}, **spec},
            }
        )

    async def policy(self, name: str, index: int, **spec: Any) -> None:
        await self.make(POLICY, name, {"index": index, "name": spec.pop("called", name), **spec})

    async def secret(self, name: str, data: dict[str, str]) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        await self.kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    async def find(self, kind: Kind, name: str) -> Manifest:
        found = await self.kube.get(kind, self.namespace, name)
        assert found is not None, name
        return found

    async def remove(self, kind: Kind, name: str) -> None:
        """Delete an object as `kubectl delete` does, and take a finalizer of ours away as a careless person does."""
        live = await self.find(kind, name)
        self.kept[name] = live
        if live["metadata"].get("finalizers"):
            await self.kube.patch(kind, self.namespace, name, {"metadata": {"finalizers": None}})
        await self.kube.delete(kind, self.namespace, name, live["metadata"]["uid"])

    async def told(self, kind: Kind, name: str, type_: str) -> tuple[str, str]:
        """Reason and message of a condition."""
        conditions = (await self.find(kind, name))["status"]["conditions"]
        found = next(one for one in conditions if one["type"] == type_)
        return found["reason"], found["message"]


Step = Callable[[Case], Awaitable[None]]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def shrink(case: Case) -> None:
    await case.edit({"pools": [{**POOL, "storage": {"size": "5Gi"}}]})


async def other_class(case: Case) -> None:
    await case.edit({"pools": [{**POOL, "storage": {"size": "10Gi", "className": "other"}}]})


async def class_as_it_was(case: Case) -> None:
    _, message = await case.told(CLUSTER, "store", "SpecValid")
    assert "storage.className of pool disks can't change, for there are volumes: remove it" in message
    await case.edit({"pools": [POOL]})


async def set_size_as_told(case: Case) -> None:
    _, message = await case.told(CLUSTER, "store", "SpecValid")
    found = re.search(r"set it to (\S+) or more", message)
    assert found is not None, message
    await case.edit({"pools": [{**POOL, "storage": {"size": found[1]}}]})


def pools(*more: dict[str, Any]) -> Step:
    async def act(case: Case) -> None:
        await case.edit({"pools": [POOL, *more]})

    return act


async def lose_policy(case: Case) -> None:
    await case.policy("gold", 1)
    await case.cluster.settle()
    await case.remove(POLICY, "gold")


async def make_gold(case: Case) -> None:
    await case.policy("gold", 1)


async def two_defaults(case: Case) -> None:
    await case.policy("gold", 1, default=True)
    await case.policy("tin", 2, default=True)


async def index_twice(case: Case) -> None:
    await case.policy("gold", 1)
    await case.policy("tin", 1)


async def name_twice(case: Case) -> None:
    await case.policy("gold", 1)
    await case.policy("tin", 2, called="Gold")


async def remove_tin(case: Case) -> None:
    await case.remove(POLICY, "tin")


async def no_default(case: Case) -> None:
    await case.policy("main", 0)


async def main_is_default(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "main", {"spec": {"default": True}})


async def tin_is_no_default(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "tin", {"spec": {"default": False}})


async def reuse_index(case: Case) -> None:
    await lose_policy(case)
    await case.policy("tin", 1)


async def make_gold_again(case: Case) -> None:
    await case.remove(POLICY, "tin")
    await case.policy("gold", 1)
    await case.policy("tin", 2)


async def unknown_pool(case: Case) -> None:
    await case.policy("gold", 1, pools=["nowhere"])


async def correct_pools(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "gold", {"spec": {"pools": ["disks"]}})


async def one_region(case: Case) -> None:
    await case.policy("gold", 1, writeQuorum="local")


async def most_anywhere(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "gold", {"spec": {"writeQuorum": "majority"}})


def in_two_regions(west: int) -> list[dict[str, Any]]:
    """Pools in two regions, with so many pods in the west."""
    return [{**POOL, "region": "east"}, {**POOL, "name": "others", "region": "west", "replicas": west}]


async def a_replica_for_two_regions(case: Case) -> None:
    await case.edit({"pools": in_two_regions(1)})
    await case.policy("gold", 1, writeQuorum="each-region", replicas=1)


async def a_replica_in_each_region(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "gold", {"spec": {"replicas": 3}})


async def local_without_proxies(case: Case) -> None:
    await case.edit({"pools": in_two_regions(2)})
    await case.policy("gold", 1, writeQuorum="local")


async def proxies_in_both_regions(case: Case) -> None:
    await case.edit({"proxy": {"regions": ["east", "west"]}})


async def local_in_a_small_region(case: Case) -> None:
    await case.edit({"pools": in_two_regions(1), "proxy": {"regions": ["east", "west"]}})
    await case.policy("gold", 1, writeQuorum="local")


async def more_pods_there(case: Case) -> None:
    await case.edit({"pools": in_two_regions(2)})


async def other_region_of_proxies(case: Case) -> None:
    await case.edit({"proxy": {"regions": ["north"]}})


async def region_as_of_a_pool(case: Case) -> None:
    await case.edit({"pools": [{**POOL, "region": "north"}]})


async def other_coding(case: Case) -> None:
    await case.policy("gold", 1)
    await case.cluster.settle()
    await case.remove(POLICY, "gold")
    await case.policy("gold", 1, erasureCoding={"data": 2, "parity": 1})


async def coding_as_it_was(case: Case) -> None:
    await case.remove(POLICY, "gold")
    await case.policy("gold", 1)


async def too_many_replicas(case: Case) -> None:
    await case.policy("gold", 1, replicas=4)


async def fewer_replicas(case: Case) -> None:
    await case.kube.patch(POLICY, case.namespace, "gold", {"spec": {"replicas": 3}})


async def too_many_listings(case: Case) -> None:
    await case.kube.patch(RING, case.namespace, "store-container", {"spec": {"replicas": 4}})


async def more_servers(case: Case) -> None:
    await case.edit({"container": {"replicas": 4}})


async def second_ring(case: Case) -> None:
    spec = (await case.find(RING, "store-object-0"))["spec"]
    await case.make(RING, "another", spec)


async def remove_second_ring(case: Case) -> None:
    await case.remove(RING, "another")


async def nameless_rdma(case: Case) -> None:
    await case.edit({"pools": [{**POOL, "rdma": {"mode": "required", "resource": "rdma/hca"}}]})


async def lose_keys(case: Case) -> None:
    for name in ("store-keys", "store-keys-copy"):
        await case.remove(SECRET, name)


async def restore_keys(case: Case) -> None:
    await case.secret("store-keys", case.kept["store-keys"]["data"])


async def empty_keys(case: Case) -> None:
    live = await case.find(SECRET, "store-keys")
    case.kept["store-keys"] = live
    for name in ("store-keys", "store-keys-copy"):
        await case.kube.patch(SECRET, case.namespace, name, {"data": {"hash-path-suffix": None}})


async def restore_entries(case: Case) -> None:
    await case.kube.patch(SECRET, case.namespace, "store-keys", {"data": case.kept["store-keys"]["data"]})


async def other_suffix(case: Case) -> None:
    case.kept["store-keys"] = await case.find(SECRET, "store-keys")
    change = {"data": {"hash-path-suffix": encoded("another-one-of-enough-length")}}
    await case.kube.patch(SECRET, case.namespace, "store-keys", change)


async def right_suffix_in_both(case: Case) -> None:
    change = {"data": {"hash-path-suffix": case.kept["store-keys"]["data"]["hash-path-suffix"]}}
    for name in ("store-keys", "store-keys-copy"):
        await case.kube.patch(SECRET, case.namespace, name, change)


async def ask_for_tls(case: Case) -> None:
    await case.edit({"tls": {"secretRef": {"name": "pair"}}})


def tls_secret(**data: str) -> Step:
    async def act(case: Case) -> None:
        await case.secret("pair", {name.replace("_", "."): encoded(text) for name, text in data.items()})
        await ask_for_tls(case)

    return act


async def right_pair(case: Case) -> None:
    live = await case.kube.get(SECRET, case.namespace, "pair")
    if live is not None:
        await case.remove(SECRET, "pair")
    await case.cluster._certificate("pair")


async def ask_for_realms(case: Case) -> None:
    await case.edit({"containerSync": {"realmsSecretRef": {"name": "realms"}}})


async def make_realms(case: Case) -> None:
    await case.secret("realms", {"realms.conf": encoded("[company]\nkey = secret\n")})


async def no_network(case: Case) -> None:
    await case.edit({"network": {"clients": [{"ipBlock": {"cidr": "10.1.0.0/99"}}]}})


async def a_network(case: Case) -> None:
    await case.edit({"network": {"clients": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}})


def named_for_pods(field: str) -> Step:
    async def act(case: Case) -> None:
        await case.edit({"podDefaults": {field: "absent"}})

    return act


async def make_account(case: Case) -> None:
    metadata = {"name": "absent", "namespace": case.namespace}
    await case.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


async def another_class(case: Case) -> None:
    await case.edit({"podDefaults": {"priorityClassName": "system-node-critical"}})


async def ask_for_a_certificate(case: Case) -> None:
    await case.edit({"tls": {"certManager": {"issuerRef": {"name": "ours"}}}})


async def secret_instead(case: Case) -> None:
    """What CertificateReady says, where `SpecValid` points."""
    reason, message = await case.told(CLUSTER, "store", "CertificateReady")
    assert reason == "CertManagerMissing"
    assert "remove spec.tls.certManager and name a Secret in spec.tls.secretRef" in message
    await case.cluster._certificate("pair")
    await case.edit({"tls": {"certManager": None, "secretRef": {"name": "pair"}}})


CASES: dict[str, tuple[Step, Step]] = {
    "NetworkUnusable": (no_network, a_network),
    "StorageShrunk": (shrink, set_size_as_told),
    "StorageClassChanged": (other_class, class_as_it_was),
    "PoolNamesCollide": (
        pools({**POOL, "name": "a", "zones": ["b-c"]}, {**POOL, "name": "a-b", "zones": ["c"]}),
        pools({**POOL, "name": "a", "zones": ["b-c"]}, {**POOL, "name": "renamed", "zones": ["c"]}),
    ),
    "PolicyRemoved": (lose_policy, make_gold),
    "TwoDefaultPolicies": (two_defaults, tin_is_no_default),
    "NoDefaultPolicy": (no_default, main_is_default),
    "PolicyIndexTwice": (index_twice, remove_tin),
    "PolicyNameTwice": (name_twice, remove_tin),
    "PolicyIndexReused": (reuse_index, make_gold_again),
    "PolicyPoolUnknown": (unknown_pool, correct_pools),
    "PolicyCodingChanged": (other_coding, coding_as_it_was),
    "ProxyRegionUnknown": (other_region_of_proxies, region_as_of_a_pool),
    "RegionTooSmall": (local_in_a_small_region, more_pods_there),
    "RegionsTooFew": (one_region, most_anywhere),
    "RegionsWithoutProxies": (local_without_proxies, proxies_in_both_regions),
    "ReplicasTooFew": (a_replica_for_two_regions, a_replica_in_each_region),
    "TooFewDevices": (too_many_replicas, fewer_replicas),
    "TooFewContainerServers": (too_many_listings, more_servers),
    "RingTwice": (second_ring, remove_second_ring),
    "KeysLost": (lose_keys, restore_keys),
    "KeysIncomplete": (empty_keys, restore_entries),
    "KeysDiffer": (other_suffix, right_suffix_in_both),
    "TLSSecretMissing": (ask_for_tls, right_pair),
    "TLSSecretIncomplete": (tls_secret(tls_crt="text"), right_pair),
    "TLSSecretUnusable": (tls_secret(tls_crt="text", tls_key="text"), right_pair),
    "RealmsSecretMissing": (ask_for_realms, make_realms),
    "CertificateNotIssued": (ask_for_a_certificate, secret_instead),
    "ServiceAccountMissing": (named_for_pods("serviceAccountName"), make_account),
    "PriorityClassMissing": (named_for_pods("priorityClassName"), another_class),
}
"""What makes the cluster violate a check, and what the check's message advises."""


async def settled(apiserver: ApiServer, kube: Counting) -> Case:
    cluster = Cluster(apiserver, kube, "minimal")
    await cluster.make()
    await cluster.settle()
    return Case(cluster)


@pytest.mark.parametrize("reason", CASES)
async def test_a_cluster_is_valid_again_when_the_advice_is_taken(
    apiserver: ApiServer, kube: Counting, reason: str
) -> None:
    case = await settled(apiserver, kube)
    spoil, advised = CASES[reason]
    await spoil(case)
    await case.cluster.step()
    told, message = await case.told(CLUSTER, "store", "SpecValid")
    assert told == reason, message

    await advised(case)
    await case.cluster.step()
    assert await case.told(CLUSTER, "store", "SpecValid") == (
        "Valid",
        "the cluster and the objects around it fit together",
    )


OTHERS: dict[str, tuple[Kind, str, Step, Step]] = {}


def _of(kind: Kind, name: str, reason: str) -> Callable[[Step], Step]:
    def keep(spoil: Step) -> Step:
        OTHERS[reason] = (kind, name, spoil, _ADVISED[reason])
        return spoil

    return keep


async def _another_user(case: Case) -> None:
    await case.remove(USER, "later")
    await case.make(USER, "later", {"account": "test", "user": "other"})


async def _no_reference(case: Case) -> None:
    await case.kube.patch(USER, case.namespace, "later", {"spec": {"secretRef": None}})


async def _its_policy(case: Case) -> None:
    await case.policy("gold", 7)


async def _name_the_login(case: Case) -> None:
    await case.edit({"auth": {"users": [{"account": "test", "user": "one", "roles": ["reseller_admin"]}]}})


_ADVISED = {
    "UserTwice": _another_user,
    "AccountReserved": _name_the_login,
    "RoleNotAllowed": _name_the_login,
    "SecretMissing": _no_reference,
    "PolicyUnknown": _its_policy,
}


@_of(USER, "later", "UserTwice")
async def _user_twice(case: Case) -> None:
    await case.make(USER, "earlier", {"account": "test", "user": "one"})
    await case.make(USER, "later", {"account": "test", "user": "one"})


@_of(USER, "later", "AccountReserved")
async def _account_reserved(case: Case) -> None:
    await case.edit({"auth": {"reservedAccounts": ["test"]}})
    await case.make(USER, "later", {"account": "test", "user": "one"})


@_of(USER, "later", "RoleNotAllowed")
async def _role_not_allowed(case: Case) -> None:
    await case.make(USER, "later", {"account": "test", "user": "one", "roles": ["reseller_admin"]})


@_of(USER, "later", "SecretMissing")
async def _secret_missing(case: Case) -> None:
    await case.make(USER, "later", {"account": "test", "user": "one", "secretRef": {"name": "gone", "key": "key"}})


@_of(RING, "spare", "PolicyUnknown")
async def _no_policy(case: Case) -> None:
    spec = {"type": "object", "policyIndex": 7, "partPower": 6, "replicas": 3}
    await case.make(RING, "spare", spec)


@pytest.mark.parametrize("reason", OTHERS)
async def test_another_object_is_accepted_when_the_advice_is_taken(
    apiserver: ApiServer, kube: Counting, reason: str
) -> None:
    case = await settled(apiserver, kube)
    kind, name, spoil, advised = OTHERS[reason]
    await spoil(case)
    await case.cluster.step()
    told, message = await case.told(kind, name, "Ready")
    assert told == reason, message

    await advised(case)
    await case.cluster.settle()
    # There are no proxies here that could say that they take a login.
    assert (await case.told(kind, name, "Ready"))[0] in {"Accepted", "Published", "ProxiesSilent"}


async def test_of_two_quotas_one_is_merged_into_the_other(apiserver: ApiServer, kube: Counting) -> None:
    case = await settled(apiserver, kube)
    await case.make(QUOTA, "first", {"levels": [{"name": "default"}]})
    await case.make(QUOTA, "second", {"levels": [{"name": "default"}, {"name": "large"}]})
    await case.cluster.step()
    reason, message = await case.told(QUOTA, "second", "Ready")
    assert (reason, "StorageQuota first" in message) == ("QuotaTwice", True)

    await case.remove(QUOTA, "second")
    await case.kube.patch(
        QUOTA, case.namespace, "first", {"spec": {"levels": [{"name": "default"}, {"name": "large"}]}}
    )
    await case.cluster.step()
    assert (await case.told(QUOTA, "first", "Ready"))[0] == "Accepted"


@pytest.mark.parametrize(
    "pool",
    [
        {**POOL, "roles": ["proxy"]},
        {**POOL, "rdma": {"mode": "required"}},
        {**POOL, "name": "proxy"},
        {**POOL, "name": "p" * 30, "zones": ["z" * 40]},
    ],
    ids=REFUSED_AT_ONCE,
)
async def test_what_one_object_alone_can_get_wrong_is_refused_at_once(
    apiserver: ApiServer, kube: Counting, pool: dict[str, Any]
) -> None:
    case = await settled(apiserver, kube)
    with pytest.raises(KubeInvalid):
        await case.edit({"pools": [pool]})


async def test_encryption_beside_rdma_is_refused_at_once_and_its_advice_can_be_taken(
    apiserver: ApiServer, kube: Counting
) -> None:
    case = await settled(apiserver, kube)
    rdma = {"resource": "rdma/hca_shared_devices_a"}
    with pytest.raises(KubeInvalid, match=r"set rdma\.mode to disabled wherever rdma\.resource is set"):
        await case.edit({"encryption": "transport", "rdma": rdma})
    await case.edit({"encryption": "transport", "rdma": {**rdma, "mode": "disabled"}})
    await case.cluster.settle()
    assert (await case.told(CLUSTER, "store", "SpecValid"))[0] == "Valid"


async def test_a_default_that_is_deprecated_is_refused_at_once_and_its_advice_can_be_taken(
    apiserver: ApiServer, kube: Counting
) -> None:
    case = await settled(apiserver, kube)
    await case.policy("main", 0, default=True)
    await case.policy("gold", 1)
    with pytest.raises(KubeInvalid, match="set default: true on another StoragePolicy first"):
        await case.kube.patch(POLICY, case.namespace, "main", {"spec": {"deprecated": True}})
    await case.kube.patch(POLICY, case.namespace, "main", {"spec": {"deprecated": True, "default": False}})
    await case.kube.patch(POLICY, case.namespace, "gold", {"spec": {"default": True}})
    await case.cluster.settle()
    assert (await case.told(CLUSTER, "store", "SpecValid"))[0] == "Valid"
    assert (await case.told(POLICY, "main", "Ready"))[0] == "Deprecated"


async def test_an_assignment_to_an_unknown_level_is_refused_at_once(apiserver: ApiServer, kube: Counting) -> None:
    case = await settled(apiserver, kube)
    assignments = [{"level": "nobody", "account": "test"}]
    with pytest.raises(KubeInvalid):
        await case.make(QUOTA, "limits", {"levels": [{"name": "default"}], "assignments": assignments})


async def test_a_ring_object_with_another_part_power_is_made_again_with_the_rings(
    apiserver: ApiServer, kube: Counting
) -> None:
    case = await settled(apiserver, kube)
    spec = (await case.find(RING, "store-object-0"))["spec"]
    await case.remove(RING, "store-object-0")
    await case.make(RING, "store-object-0", {**spec, "partPower": 9})
    await case.cluster.step()
    reason, message = await case.told(CLUSTER, "store", "RingsBalanced")
    assert reason == "PartPowerChanged"
    assert "delete the Ring object, and it is made again with 6" in message

    await case.remove(RING, "store-object-0")
    await case.cluster.settle()
    assert (await case.find(RING, "store-object-0"))["spec"]["partPower"] == 6
    assert (await case.told(CLUSTER, "store", "RingsBalanced"))[0] == "Balanced"


def test_every_refusal_is_tried() -> None:
    reasons = set(re.findall(r'Verdict\(\s*"(\w+)"', inspect.getsource(checks)))
    reasons |= set(re.findall(r'yield \(\s*"(\w+)"', inspect.getsource(regions)))
    reasons |= {checks.KEYS_LOST, logins.TWICE, logins.RESERVED, logins.NOT_ALLOWED}
    tried = {*CASES, *OTHERS, "QuotaTwice", "LevelUnknown", "DefaultDeprecated", "RDMANotEncrypted", *REFUSED_AT_ONCE}
    assert reasons == tried | EXEMPT
