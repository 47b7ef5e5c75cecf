"""The CRDs on a real API server: what a person reads who gets something wrong, what is filled in, what can't change.

The tables hold every sentence in full; a rule in a CRD without a line here is found by the last test of its part.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

import pytest

from swiftlet.crd import KINDS
from swiftlet.crd.tests.openapi import load_crds, load_examples, schema_of, walk, with_defaults
from swiftlet_operator.tests.apiserver import APPLY_PATCH, TABLE, Answer, ApiServer

pytestmark = pytest.mark.apiserver

CRDS = load_crds()
GONE = "(gone)"
"""Stands for a field that is taken out."""

POOL = {"name": "main", "replicas": 3, "storage": {"size": "100Gi"}}
REF = {"clusterRef": {"name": "photos"}}
GOOD: dict[str, dict[str, Any]] = {
    "StorageCluster": {"pools": [POOL]},
    "Ring": REF | {"type": "object", "policyIndex": 0},
    "StoragePolicy": REF | {"index": 0, "name": "standard"},
    "StorageQuota": REF | {"levels": [{"name": "default", "containerCount": 5}]},
    "StorageUser": REF | {"account": "press", "user": "alice"},
}
Changes = dict[str, Any]


def spec(kind: str, changes: Changes) -> dict[str, Any]:
    """A good spec, changed: `{"pools.0.storage.size": "1Gi"}`."""
    made = copy.deepcopy(GOOD[kind])
    for path, value in changes.items():
        *way, last = path.split(".")
        at: Any = made
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        if value == GONE:
            del at[last]
        elif isinstance(at, list):
            at.append(value) if int(last) == len(at) else at.__setitem__(int(last), value)
        else:
            at[last] = value
    return made


def manifest(kind: str, changes: Changes, name: str = "photos") -> dict[str, Any]:
    """A resource with that spec."""
    head = {"apiVersion": "swiftlet.io/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return head | {"spec": spec(kind, changes)}


def collection(kind: str, namespace: str) -> str:
    """Where resources of a kind live."""
    return f"/apis/swiftlet.io/v1alpha1/namespaces/{namespace}/{KINDS[kind].plural}"


def sentences(answer: Answer) -> dict[str, list[str]]:
    """What was wrong by field, without the field and the value that the API server puts in front."""
    found: dict[str, list[str]] = {}
    for field, text in answer.causes:
        plain = re.sub(r'^Invalid value: ("[^"]*"|\S+): ', "", text).removeprefix(f"{field} in body ")
        found.setdefault(field, []).append(plain.replace("map[string]interface {}", ""))
    return found


@pytest.fixture
def namespace(apiserver: ApiServer) -> str:
    """One of the test's own."""
    return apiserver.namespace()


# --- refused from the start ------------------------------------------------------------------------------------------

CLUSTER_NAME = (
    "the name of a StorageCluster becomes part of the names of Services: at most 40 lower-case letters, digits and "
    "'-', beginning with a letter"
)
STATEFUL_SET_NAME = (
    "the names of the cluster, a pool and its zone make up the name of a StatefulSet: together they may have 50 "
    "characters; shorten one of them"
)
CONTAINER_SET_NAME = (
    "the names of the cluster and of a zone in container.zones make up the name of a StatefulSet: together they may "
    "have 41 characters; shorten the cluster's name"
)
TOO_FEW_DEVICES = (
    "the pools have fewer devices (replicas x devicesPerPod, without pools of weight 0) than rings.replicas asks for; "
    "add pods or devices, or ask for fewer replicas"
)
TOO_FEW_CONTAINER_SERVERS = (
    "container.replicas must be at least rings.replicas: every replica of a database needs a container server of its "
    "own"
)
FEW_PROXIES = "proxy.replicas must be at least the number of proxy.regions, so that every region has a pod, or 0"
NO_PROXY = "nothing would serve the API: set proxy.replicas to 1 or more, or give a pool the role proxy"
NO_GRANTS = (
    "directAccess.enabled needs metadata servers, which give clients their grants: set metadata.replicas to 1 or more, "
    "or directAccess.enabled to false"
)
CODING = {"data": 4, "parity": 2}
PACK_BELOW = "packBelow may be 1Mi at most; 64Ki suits most stores, and 0 codes all objects"
CELL_SIZE = "cellSize may be 1Ki to 1Mi; leave it out for 64Ki"
NO_REPLICAS = "replicas is for copies: erasureCoding makes data + parity fragments; remove one of the two"
NO_QUORUM = (
    "writeQuorum can only be majority with erasureCoding, whose fragments are spread over all regions; remove one of "
    "the two"
)
SAME_SET = (
    "the name of a pool begins with POOL-ZONE, the name of another pool and one of its zones: their StatefulSets "
    "could have the same name; choose another name for the new pool"
)
RESERVED = (
    "a pool can't be named container, metadata, proxy, redis, storage, container-... or proxy-...: these are the names "
    "of other parts of the cluster; choose another name"
)
TINY = "size must be at least 100Mi: a smaller volume can't hold a store"
NO_RESOURCE = (
    "rdma.mode required needs rdma.resource, the name of the device plugin's resource such as rdma/hca_shared_devices_a"
)
FAST = {"mode": "auto", "resource": "rdma/hca_shared_devices_a"}
NOT_BOTH = (
    "encryption: transport can't be used together with RDMA, which is not encrypted: set rdma.mode to disabled "
    "wherever rdma.resource is set, or set encryption to none"
)
QUANTITY = r"should match '^[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][0-9]{1,2})?$'"
WITHOUT_OBJECT = "roles must contain object, alone or together with proxy: the pods of a pool store objects"
POLICY_INDEX = (
    "policyIndex names the storage policy of a ring of type object: set it for that type, remove it for others"
)
WITH_A_ZONE = POOL | {"zones": ["b"]}
NOT_YOUR_LABELS = (
    "app.kubernetes.io/name, instance, component and managed-by, controller-revision-hash, pod-template-hash, and "
    "labels of swiftlet.io, apps.kubernetes.io and statefulset.kubernetes.io are set by the operator or "
    "Kubernetes; use another key"
)
NOT_YOUR_ANNOTATIONS = "annotations of swiftlet.io are reserved for the operator; use another key"
LABELLED = ("podDefaults.podLabels", "serviceDefaults.labels", "proxy.podLabels", "proxy.service.labels")
ANNOTATED = ("podDefaults.podAnnotations", "serviceDefaults.annotations", "redis.podAnnotations")
ISSUER = {"issuerRef": {"name": "ours"}}
ONE_OF_TWO = (
    "tls.secretRef names a Secret of your own, and tls.certManager has one made: keep one of the two and remove the "
    "other"
)
NO_NAME = (
    "tls.certManager would ask for a certificate without names: set tls.certManager.serviceNames to true, or add "
    "names to tls.certManager.dnsNames, proxy.ingress.hosts or proxy.route.hostnames"
)
RENEWED_ALL_THE_TIME = (
    "tls.certManager.renewBefore must be less than duration (2160h where that is not set), or the certificate would be "
    "renewed all the time"
)

NOBODY_MEANT = "set ipBlock alone, or namespaceSelector, podSelector or both of them"
VALUES = "values must have at least one item for the operators In and NotIn, and none for Exists and DoesNotExist"
LETS_OUT_ALL = (
    "a rule without to and ports would allow all outgoing connections: add to or ports, or, if you want that, set "
    "network.policies to ingress"
)
LAST_PORT = "endPort must be at least port, as it is the last port of a range that begins there; raise it or remove it"
NO_VALUES = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}}

MEMBER = {"name": "west", "namespace": "objects", "cluster": "photos-west", "kubeconfigSecretRef": {"name": "west"}}
FEDERATION = {
    "name": "photos",
    "member": "east",
    "leader": "east",
    "peers": [{"ipBlock": {"cidr": "10.2.0.0/16"}}],
    "members": [MEMBER],
}
FEDERATED = {"encryption": "transport", "federation": FEDERATION}
HOSTS = {"hostTemplate": "{pod}.east.example.org"}
SAME_HOSTS = (
    "federation.hostTemplate can't change once the cluster is made, as its devices have these names in the rings: put "
    "it back as it was; a store that was made without it keeps its names in the cluster, which the DNS of the other "
    "members can resolve"
)
SAME_NAMES = (
    "federation.name and federation.member can't change, as rings and other members know this cluster by them: put "
    "them back"
)

BAD: list[tuple[str, Changes, str, str]] = [
    (
        "StorageCluster",
        {"federation": FEDERATION},
        "spec",
        "federation needs encryption: transport, as what its members say to each other leaves their networks",
    ),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | {"members": [MEMBER | {"name": "east"}]}},
        "spec.federation",
        "federation.members are the others; remove the entry with the name in federation.member",
    ),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | {"leader": "north"}},
        "spec.federation",
        "federation.members has no entry for the leader, from which this member takes the rings: add one with the name "
        "in federation.leader, or correct federation.leader",
    ),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | {"hostTemplate": "store.example.org"}},
        "spec.federation",
        "federation.hostTemplate must have {pod} in it, as each pod with data has a host name of its own",
    ),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | {"podServices": {"annotations": {"swiftlet.io/mine": "x"}}} | HOSTS},
        "spec.federation.podServices.annotations",
        NOT_YOUR_ANNOTATIONS,
    ),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | {"podServices": {}}},
        "spec.federation",
        "federation.podServices needs a federation.hostTemplate with names that lead to them: set it, or remove "
        "podServices",
    ),
    # Who may reach whom.
    ("StorageCluster", {"network.clients": [{}]}, "spec.network.clients[0]", NOBODY_MEANT),
    (
        "StorageCluster",
        {"network.clients": [NO_VALUES]},
        "spec.network.clients[0].namespaceSelector.matchExpressions[0]",
        VALUES,
    ),
    ("StorageCluster", {"network.extraEgress": [{"name": "all"}]}, "spec.network.extraEgress[0]", LETS_OUT_ALL),
    (
        "StorageCluster",
        {"network.extraEgress": [{"name": "a", "ports": [{"port": 9, "endPort": 8}]}]},
        "spec.network.extraEgress[0].ports[0]",
        LAST_PORT,
    ),
    # Numbers of pods and devices.
    ("StorageCluster", {"pools": []}, "spec.pools", "should have at least 1 items"),
    ("StorageCluster", {"pools.0.replicas": 2}, "spec", TOO_FEW_DEVICES),
    ("StorageCluster", {"pools.0.weight": 0}, "spec", TOO_FEW_DEVICES),
    ("StorageCluster", {"pools.0.replicas": 1, "pools.0.devicesPerPod": 2}, "spec", TOO_FEW_DEVICES),
    ("StorageCluster", {"rings.replicas": 3.5}, "spec", TOO_FEW_DEVICES),
    ("StorageCluster", {"container.replicas": 2}, "spec", TOO_FEW_CONTAINER_SERVERS),
    ("StorageCluster", {"proxy.replicas": 0}, "spec", NO_PROXY),
    ("StorageCluster", {"proxy.replicas": 1, "proxy.regions": ["east", "west"]}, "spec.proxy", FEW_PROXIES),
    ("StorageCluster", {"proxy.regions": ["east", "east"]}, "spec.proxy.regions[1]", 'Duplicate value: "east"'),
    ("StorageCluster", {"directAccess.enabled": True, "metadata.replicas": 0}, "spec", NO_GRANTS),
    (
        "StorageCluster",
        {"pools.0.replicas": 0},
        "spec.pools[0].replicas",
        "should be greater than or equal to 1",
    ),
    (
        "StorageCluster",
        {"container.replicas": 0},
        "spec.container.replicas",
        "should be greater than or equal to 1",
    ),
    (
        "StorageCluster",
        {"pools.0.devicesPerPod": 33},
        "spec.pools[0].devicesPerPod",
        "should be less than or equal to 32",
    ),
    ("StorageCluster", {"pools.0.weight": -1}, "spec.pools[0].weight", "should be greater than or equal to 0"),
    ("StorageCluster", {"rings.replicas": 0.5}, "spec.rings.replicas", "should be greater than or equal to 1"),
    ("StorageCluster", {"rings.partPower": 23}, "spec.rings.partPower", "should be less than or equal to 22"),
    # Zones and names.
    (
        "StorageCluster",
        {"pools.0.zones": ["a", "b", "c", "d"]},
        "spec.pools[0]",
        "replicas must be at least the number of zones, so that every zone has a pod",
    ),
    (
        "StorageCluster",
        {"container.zones": ["a", "b", "c", "d"]},
        "spec.container",
        "container.replicas must be at least the number of container.zones, so that every zone has a pod",
    ),
    ("StorageCluster", {"pools.0.zones": ["a", "a"]}, "spec.pools[0].zones[1]", 'Duplicate value: "a"'),
    ("StorageCluster", {"pools.1": POOL}, "spec.pools[1]", 'Duplicate value: {"name":"main"}'),
    (
        "StorageCluster",
        {"pools.0.zones": ["Zone_A"]},
        "spec.pools[0].zones[0]",
        "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
    ),
    ("StorageCluster", {"pools.0.name": "proxy"}, "spec.pools[0]", RESERVED),
    ("StorageCluster", {"pools.0.name": "container-a"}, "spec.pools[0]", RESERVED),
    ("StorageCluster", {"pools.0.name": "proxy-east"}, "spec.pools[0]", RESERVED),
    ("StorageCluster", {"pools.0": WITH_A_ZONE, "pools.1": POOL | {"name": "main-b"}}, "spec", SAME_SET),
    ("StorageCluster", {"pools.0": WITH_A_ZONE, "pools.1": WITH_A_ZONE | {"name": "main-b"}}, "spec", SAME_SET),
    ("StorageCluster", {"pools.0.name": "a" * 30, "pools.0.zones": ["z" * 15]}, "<nil>", STATEFUL_SET_NAME),
    ("StorageCluster", {"container.zones": ["z" * 36]}, "<nil>", CONTAINER_SET_NAME),
    # Roles, kinds of Service, RDMA, Redis.
    ("StorageCluster", {"pools.0.roles": ["proxy"]}, "spec.pools[0]", WITHOUT_OBJECT),
    (
        "StorageCluster",
        {"pools.0.roles": ["object", "cook"]},
        "spec.pools[0].roles[1]",
        'Unsupported value: "cook": supported values: "object", "proxy"',
    ),
    (
        "StorageCluster",
        {"proxy.service.type": "ExternalName"},
        "spec.proxy.service.type",
        'Unsupported value: "ExternalName": supported values: "ClusterIP", "NodePort", "LoadBalancer"',
    ),
    (
        "StorageCluster",
        {"proxy.service.nodePort": 30080},
        "spec.proxy.service",
        "service.nodePort applies only to the types NodePort and LoadBalancer: remove it, or change service.type",
    ),
    ("StorageCluster", {"rdma.mode": "required"}, "spec.rdma", NO_RESOURCE),
    ("StorageCluster", {"pools.0.rdma": {"mode": "required"}}, "spec.pools[0].rdma", NO_RESOURCE),
    ("StorageCluster", {"encryption": "transport", "rdma": FAST}, "spec", NOT_BOTH),
    ("StorageCluster", {"encryption": "transport", "proxy.rdma": FAST}, "spec", NOT_BOTH),
    ("StorageCluster", {"encryption": "transport", "pools.0.rdma": FAST}, "spec", NOT_BOTH),
    (
        "StorageCluster",
        {"redis.mode": "external"},
        "spec.redis",
        "redis.mode external needs redis.address, HOST:PORT of that Redis",
    ),
    (
        "StorageCluster",
        {"redis.address": "redis:6379"},
        "spec.redis",
        "redis.address and redis.passwordSecretRef apply only to redis.mode external: remove them, or set that mode",
    ),
    (
        "StorageCluster",
        {"redis.tls": {"enabled": True}},
        "spec.redis",
        "redis.tls applies only to redis.mode external: remove it (the embedded Redis uses TLS if spec.tls is "
        "set), or set that mode",
    ),
    (
        "StorageCluster",
        {"redis": {"mode": "external", "address": "redis:6379", "tls": {"caSecretRef": {"name": "ca"}}}},
        "spec.redis",
        "redis.tls.caSecretRef has no effect without TLS: remove it, or set redis.tls.enabled to true",
    ),
    (
        "StorageCluster",
        {"deletionPolicy": "Keep"},
        "spec.deletionPolicy",
        'Unsupported value: "Keep": supported values: "Retain", "Delete"',
    ),
    # Maintenance.
    ("StorageCluster", {"maintenance": {}}, "spec.maintenance.zone", "Required value"),
    (
        "StorageCluster",
        {"maintenance.zone": "a zone"},
        "spec.maintenance.zone",
        "should match '^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'",
    ),
    (
        "StorageCluster",
        {"replaceLostNodesAfterSeconds": -1},
        "spec.replaceLostNodesAfterSeconds",
        "should be greater than or equal to 0",
    ),
    (
        "StorageCluster",
        {"replaceLostNodesAfterSeconds": 2_678_401},
        "spec.replaceLostNodesAfterSeconds",
        "should be less than or equal to 2678400",
    ),
    (
        "StorageCluster",
        {"drain": [f"p-{index}" for index in range(65)]},
        "spec.drain",
        "Too many: 65: must have at most 64 items",
    ),
    ("StorageCluster", {"drain": ["p-0", "p-0"]}, "spec.drain[1]", 'Duplicate value: "p-0"'),
    (
        "StorageCluster",
        {"drain": ["p-0/sda"]},
        "spec.drain[0]",
        "should match '^[a-z]([-a-z0-9]*[a-z0-9])?(/(d[0-9]{1,2}|db))?$'",
    ),
    # What pods and Services are like.
    *(
        ("StorageCluster", {field: {key: "x"}}, f"spec.{field}", NOT_YOUR_LABELS)
        for field in LABELLED
        for key in ("app.kubernetes.io/component", "swiftlet.io/zone", "pod-template-hash")
    ),
    (
        "StorageCluster",
        {"pools.0.podLabels": {"statefulset.kubernetes.io/pod-name": "x"}},
        "spec.pools[0].podLabels",
        NOT_YOUR_LABELS,
    ),
    (
        "StorageCluster",
        {"podDefaults.podLabels": {"team": "a b"}},
        "spec.podDefaults.podLabels.team",
        "should match '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'",
    ),
    *(
        ("StorageCluster", {field: {"swiftlet.io/settings": "x"}}, f"spec.{field}", NOT_YOUR_ANNOTATIONS)
        for field in ANNOTATED
    ),
    (
        "StorageCluster",
        {"podDefaults.topologySpreadConstraints": [{"topologyKey": "rack", "whenUnsatisfiable": "Never"}]},
        "spec.podDefaults.topologySpreadConstraints[0].whenUnsatisfiable",
        'Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"',
    ),
    (
        "StorageCluster",
        {"podDefaults.topologySpreadConstraints": [{"topologyKey": "rack"}] * 2},
        "spec.podDefaults.topologySpreadConstraints[1]",
        'Duplicate value: {"topologyKey":"rack"}',
    ),
    (
        "StorageCluster",
        {"container.affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
        "spec.container.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        "Required value",
    ),
    # What is outside of the cluster: Ingress, route, certificate.
    ("StorageCluster", {"proxy.ingress": {"hosts": []}}, "spec.proxy.ingress.hosts", "should have at least 1 items"),
    (
        "StorageCluster",
        {"proxy.ingress": {"hosts": ["*.example.org"]}},
        "spec.proxy.ingress.hosts[0]",
        "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'",
    ),
    ("StorageCluster", {"proxy.route": {}}, "spec.proxy.route.parentRefs", "Required value"),
    (
        "StorageCluster",
        {"proxy.route": {"parentRefs": [{"name": "edge"}], "requestTimeout": "15 s"}},
        "spec.proxy.route.requestTimeout",
        "should match '^([0-9]{1,5}(h|m|s|ms)){1,4}$'",
    ),
    ("StorageCluster", {"tls": {"secretRef": {"name": "mine"}, "certManager": ISSUER}}, "spec.tls", ONE_OF_TWO),
    ("StorageCluster", {"tls.certManager": {}}, "spec.tls.certManager.issuerRef", "Required value"),
    ("StorageCluster", {"tls.certManager": ISSUER | {"serviceNames": False}}, "spec", NO_NAME),
    (
        "StorageCluster",
        {"tls.certManager": ISSUER | {"duration": "59m"}},
        "spec.tls.certManager",
        "tls.certManager.duration must be at least 1h, cert-manager takes no less",
    ),
    (
        "StorageCluster",
        {"tls.certManager": ISSUER | {"renewBefore": "299s"}},
        "spec.tls.certManager",
        "tls.certManager.renewBefore must be at least 5m, cert-manager takes no less",
    ),
    *(
        ("StorageCluster", {"tls.certManager": ISSUER | times}, "spec.tls.certManager", RENEWED_ALL_THE_TIME)
        for times in ({"renewBefore": "2160h"}, {"duration": "24h", "renewBefore": "24h"})
    ),
    (
        "StorageCluster",
        {"tls.certManager": ISSUER | {"duration": "90d"}},
        "spec.tls.certManager.duration",
        "should match '^([0-9]{1,6}h)?([0-9]{1,4}m)?([0-9]{1,4}s)?$'",
    ),
    # Quantities.
    ("StorageCluster", {"pools.0.storage.size": "99Mi"}, "spec.pools[0].storage", TINY),
    ("StorageCluster", {"container.storage.size": "1Mi"}, "spec.container.storage", TINY),
    (
        "StorageCluster",
        {"pools.0.storage.size": "1TB"},
        "spec.pools[0].storage.size",
        QUANTITY,
    ),
    ("StorageCluster", {"pools.0.storage.size": GONE}, "spec.pools[0].storage.size", "Required value"),
    # The other kinds.
    ("Ring", {"policyIndex": GONE}, "spec", POLICY_INDEX),
    ("Ring", {"type": "account"}, "spec", POLICY_INDEX),
    ("Ring", {"clusterRef": GONE}, "spec.clusterRef", "Required value"),
    (
        "Ring",
        {"type": "objects"},
        "spec.type",
        'Unsupported value: "objects": supported values: "account", "container", "object"',
    ),
    ("StoragePolicy", {"index": 256}, "spec.index", "should be less than or equal to 255"),
    ("StoragePolicy", {"name": "my gold"}, "spec.name", "should match '^[A-Za-z0-9][A-Za-z0-9-]{0,63}$'"),
    (
        "StoragePolicy",
        {"aggregateBelow": "4097Ki"},
        "spec",
        "aggregateBelow may be 4Mi at most, larger objects gain nothing from sharing a file",
    ),
    (
        "StoragePolicy",
        {"default": True, "deprecated": True},
        "spec",
        "a deprecated policy can't be the default: set default: true on another StoragePolicy first",
    ),
    (
        "StoragePolicy",
        {"writeQuorum": "all"},
        "spec.writeQuorum",
        'Unsupported value: "all": supported values: "majority", "local", "each-region"',
    ),
    *(
        ("StoragePolicy", {"erasureCoding": CODING | changes}, f"spec.erasureCoding.{field}", said)
        for changes, field, said in (
            ({"data": 1}, "data", "should be greater than or equal to 2"),
            ({"data": 17}, "data", "should be less than or equal to 16"),
            ({"parity": 0}, "parity", "should be greater than or equal to 1"),
            ({"parity": 9}, "parity", "should be less than or equal to 8"),
            ({"cellSize": "large"}, "cellSize", QUANTITY),
        )
    ),
    ("StoragePolicy", {"erasureCoding": {"data": 4}}, "spec.erasureCoding.parity", "Required value"),
    *(
        ("StoragePolicy", {"erasureCoding": CODING | {"cellSize": size}}, "spec.erasureCoding", CELL_SIZE)
        for size in ("1023", "1025Ki")
    ),
    ("StoragePolicy", {"erasureCoding": CODING | {"packBelow": "1025Ki"}}, "spec.erasureCoding", PACK_BELOW),
    ("StoragePolicy", {"erasureCoding": CODING, "replicas": 6}, "spec", NO_REPLICAS),
    ("StoragePolicy", {"erasureCoding": CODING, "writeQuorum": "local"}, "spec", NO_QUORUM),
    ("StoragePolicy", {"etag": "sha1"}, "spec.etag", 'Unsupported value: "sha1": supported values: "md5", "xxh3"'),
    (
        "StorageQuota",
        {"levels.0.name": "L1"},
        "spec",
        "levels must have one named default, which applies to accounts without an assignment; leave its limits "
        "out to set none",
    ),
    (
        "StorageQuota",
        {"assignments": [{"account": "press", "level": "L9"}]},
        "spec",
        "an assignment names a level that is not in levels; add the level or correct the name",
    ),
    (
        "StorageQuota",
        {"assignments": [{"account": "press", "level": "default"}] * 2},
        "spec.assignments[1]",
        'Duplicate value: {"account":"press"}',
    ),
    ("StorageQuota", {"cacheSeconds": 0}, "spec.cacheSeconds", "should be greater than or equal to 1"),
    ("StorageUser", {"account": "a:b"}, "spec.account", "should match '^[^:/\\s]+$'"),
    ("StorageUser", {"roles": []}, "spec.roles", "should have at least 1 items"),
    (
        "StorageUser",
        {"roles": ["root"]},
        "spec.roles[0]",
        'Unsupported value: "root": supported values: "admin", "user", "reader", "reseller_admin"',
    ),
]
BAD_NAMES = [
    ("StorageCluster", "1st", CLUSTER_NAME),
    ("StorageCluster", "my.photos", CLUSTER_NAME),
    ("StorageCluster", "a" * 41, CLUSTER_NAME),
    *(
        (
            kind,
            "a" * 64,
            "metadata.name may have at most 63 characters, as it becomes the value of a label; choose a shorter one",
        )
        for kind in ("Ring", "StoragePolicy", "StorageQuota", "StorageUser")
    ),
]


def ids(table: Iterable[tuple[Any, ...]]) -> list[str]:
    """`StorageCluster-pools.0.replicas=2`."""
    return [
        f"{kind}-" + ",".join(f"{path}={value}"[:40] for path, value in changes.items()) for kind, changes, *_ in table
    ]


@pytest.mark.parametrize(("kind", "changes", "field", "sentence"), BAD, ids=ids(BAD))
def test_what_can_not_be_is_refused_in_words(
    apiserver: ApiServer, kind: str, changes: Changes, field: str, sentence: str
) -> None:
    answer = apiserver.create(collection(kind, "default"), manifest(kind, changes))

    assert answer.status == 422, answer.body
    assert sentence in sentences(answer).get(field, []), answer.causes


@pytest.mark.parametrize(
    ("kind", "name", "sentence"), BAD_NAMES, ids=[f"{kind}-{name[:10]}" for kind, name, _ in BAD_NAMES]
)
def test_names_must_leave_room_for_what_is_made_of_them(
    apiserver: ApiServer, kind: str, name: str, sentence: str
) -> None:
    answer = apiserver.create(collection(kind, "default"), manifest(kind, {}, name))

    assert answer.status == 422
    assert [sentence] in sentences(answer).values()


@pytest.mark.parametrize("kind", GOOD)
def test_a_misspelt_field_is_refused_not_dropped(apiserver: ApiServer, kind: str) -> None:
    answer = apiserver.create(collection(kind, "default"), manifest(kind, {"clusterReff": 1}))

    assert answer.status == 400
    assert 'unknown field "spec.clusterReff"' in answer.message


# --- refused later ---------------------------------------------------------------------------------------------------

SAME_ZONING = (
    "zones can't change between some zones and none, as all pods of the pool would be replaced; add another pool "
    "and drain this one by weight 0"
)
SAME_PART_POWER = "partPower can't change: it decides where every object is"
SAME_CLUSTER = "clusterRef can't change: delete this object and create another one"

SAME_KEEPING = (
    "erasureCoding can't be added or removed, as objects are stored by it; create another policy and copy the "
    "containers"
)
SAME_CODING = "erasureCoding can't change, as objects are stored by it; create another policy and copy the containers"

FIXED: list[tuple[str, Changes, Changes, str, str]] = [
    (
        "StorageCluster",
        FEDERATED,
        {"encryption": "transport"},
        "spec",
        "federation can't be removed: this cluster would treat the devices of the others as gone. Drain the other "
        "members and remove them from federation.members of the leader; it may stay a member alone",
    ),
    (
        "StorageCluster",
        {"encryption": "transport"},
        FEDERATED | {"federation": FEDERATION | {"leader": "west"}},
        "spec",
        "a store that exists can only become the leader of a federation, as it has rings and keys of its own: set "
        "federation.leader to the name in federation.member, or make this StorageCluster anew to follow",
    ),
    ("StorageCluster", {"encryption": "transport"}, FEDERATED | {"federation": FEDERATION | HOSTS}, "spec", SAME_HOSTS),
    ("StorageCluster", FEDERATED, FEDERATED | {"federation": FEDERATION | HOSTS}, "spec", SAME_HOSTS),
    (
        "StorageCluster",
        FEDERATED | {"federation": FEDERATION | HOSTS},
        FEDERATED | {"federation": FEDERATION | {"hostTemplate": "{pod}.example.org"}},
        "spec",
        SAME_HOSTS,
    ),
    (
        "StorageCluster",
        FEDERATED,
        FEDERATED | {"keys": {"generation": 2}},
        "spec",
        "keys.generation can't be raised while the cluster is a member of a federation, as all members have to have "
        "the same cluster key: put it back",
    ),
    (
        "StorageCluster",
        FEDERATED,
        FEDERATED | {"federation": FEDERATION | {"name": "other"}},
        "spec.federation",
        SAME_NAMES,
    ),
    ("StorageCluster", {}, {"rings.partPower": 15}, "spec.rings.partPower", SAME_PART_POWER),
    (
        "StorageCluster",
        {},
        {"pools.0.devicesPerPod": 2},
        "spec.pools[0]",
        "devicesPerPod can't change, a StatefulSet's volumes are fixed; add a pool with as many devices as you want "
        "and drain this one by weight 0",
    ),
    ("StorageCluster", {}, {"pools.0.zones": ["a"]}, "spec.pools[0]", SAME_ZONING),
    ("StorageCluster", {"pools.0.zones": ["a"]}, {}, "spec.pools[0]", SAME_ZONING),
    (
        "StorageCluster",
        {},
        {"container.zones": ["a"]},
        "spec.container",
        "container.zones can't change between some zones and none: all databases are on the pods that would be removed",
    ),
    ("StorageCluster", {}, {"pools.0.replicas": 2}, "spec", TOO_FEW_DEVICES),
    (
        "StorageCluster",
        {"keys.generation": 2},
        {"keys.generation": 1},
        "spec.keys.generation",
        "keys.generation can only grow; raise it to have a new key made",
    ),
    ("Ring", {}, {"partPower": 15}, "spec.partPower", SAME_PART_POWER),
    ("Ring", {}, {"policyIndex": 1}, "spec.policyIndex", "policyIndex can't change: create another ring"),
    ("Ring", {}, {"type": "container", "policyIndex": GONE}, "spec.type", "type can't change: create another ring"),
    ("Ring", {}, {"clusterRef.name": "other"}, "spec.clusterRef", SAME_CLUSTER),
    ("StoragePolicy", {}, {"clusterRef.name": "other"}, "spec.clusterRef", SAME_CLUSTER),
    ("StorageQuota", {}, {"clusterRef.name": "other"}, "spec.clusterRef", SAME_CLUSTER),
    ("StorageUser", {}, {"clusterRef.name": "other"}, "spec.clusterRef", SAME_CLUSTER),
    (
        "StoragePolicy",
        {},
        {"index": 1},
        "spec.index",
        "index can't change: it is stored with every object; create another policy",
    ),
    (
        "StoragePolicy",
        {},
        {"name": "gold"},
        "spec.name",
        "name can't change: clients ask for it; create another policy",
    ),
    ("StoragePolicy", {}, {"erasureCoding": CODING}, "spec", SAME_KEEPING),
    ("StoragePolicy", {"erasureCoding": CODING}, {}, "spec", SAME_KEEPING),
    *(
        ("StoragePolicy", {"erasureCoding": CODING}, {"erasureCoding": CODING | one}, "spec.erasureCoding", SAME_CODING)
        for one in ({"data": 5}, {"parity": 3}, {"cellSize": "128Ki"})
    ),
    (
        "StorageUser",
        {},
        {"account": "other"},
        "spec.account",
        "account can't change: tokens carry it; create another user",
    ),
    ("StorageUser", {}, {"user": "bob"}, "spec.user", "user can't change: tokens carry it; create another user"),
]


def replace(apiserver: ApiServer, kind: str, namespace: str, before: Changes, after: Changes) -> Answer:
    """Create a resource, then put another spec in its place."""
    path = collection(kind, namespace)
    created = apiserver.create(path, manifest(kind, before))
    assert created.status == 201, created.message
    edited = manifest(kind, after)
    edited["metadata"]["resourceVersion"] = created.body["metadata"]["resourceVersion"]
    return apiserver.request("PUT", f"{path}/photos", edited)


@pytest.mark.parametrize(
    ("kind", "before", "after", "field", "sentence"), FIXED, ids=ids((kind, after) for kind, _, after, *_ in FIXED)
)
def test_what_is_fixed_stays(
    apiserver: ApiServer, namespace: str, kind: str, before: Changes, after: Changes, field: str, sentence: str
) -> None:
    answer = replace(apiserver, kind, namespace, before, after)

    assert answer.status == 422, answer.body
    assert sentences(answer).get(field) == [sentence]


FREE: list[tuple[str, Changes, Changes]] = [
    ("StorageCluster", {"encryption": "transport"}, FEDERATED),
    ("StorageCluster", FEDERATED, FEDERATED | {"federation": FEDERATION | {"leader": "west"}}),
    ("StorageCluster", FEDERATED, FEDERATED | {"federation": FEDERATION | {"members": []}}),
    ("StorageCluster", FEDERATED, FEDERATED | {"pools": [POOL | {"replicas": 1}], "container": {"replicas": 1}}),
    # A class that is not there can be corrected; the operator knows whether there are volumes.
    ("StorageCluster", {"pools.0.storage.className": "fast"}, {"pools.0.storage.className": "slow"}),
    ("StorageCluster", {}, {"pools.0.storage.className": "fast"}),
    ("StorageCluster", {"container.storage.className": "fast"}, {}),
    ("StorageCluster", {}, {"pools.0.storage.size": "0.2Ti", "container.storage.size": "11Gi"}),
    # Volumes that can't be made so large may be asked for smaller again; the operator knows what there is.
    ("StorageCluster", {}, {"pools.0.storage.size": "99Gi", "container.storage.size": "9Gi"}),
    ("StorageCluster", {}, {"pools.0.replicas": 4, "image": "swiftlet:2", "paused": True, "proxy.replicas": 5}),
    (
        "StorageCluster",
        {"drain": ["photos-main-0/d0"]},
        {"maintenance.zone": "Zone_A.1", "replaceLostNodesAfterSeconds": 0, "drain": ["photos-main-1"]},
    ),
    ("StorageCluster", {"pools.0.zones": ["a", "b"]}, {"pools.0.zones": ["b", "c", "d"]}),
    ("StorageCluster", {}, {"pools.0.weight": 0, "pools.1": POOL | {"name": "new"}}),
    ("StorageCluster", {"pools.1": POOL | {"name": "new"}}, {"pools.0.name": "new"}),
    ("StorageCluster", {"rings.replicas": 1, "pools.0.replicas": 1, "container.replicas": 1}, {}),
    ("StorageCluster", {}, {"proxy.replicas": 0, "pools.0.roles": ["proxy", "object"]}),
    ("StorageCluster", {}, {"rdma": {"mode": "required", "resource": "rdma/hca_shared_devices_a"}}),
    ("StorageCluster", {"rdma": FAST}, {"rdma": FAST | {"mode": "disabled"}, "encryption": "transport"}),
    ("StorageCluster", {"encryption": "transport"}, {"encryption": "none", "rdma": FAST}),
    ("StorageCluster", {}, {"proxy.resources": {"requests": {"cpu": 2, "memory": "1.5Gi"}}}),
    ("StorageCluster", {}, {"pools.0.region": "south"}),
    ("StorageCluster", {}, {"pools.0.resources": {}, "redis.resources": {"limits": {"memory": "64Mi"}}}),
    ("StorageCluster", {}, {"podDefaults.podLabels": {"team": "a", "app.kubernetes.io/part-of": "media"}}),
    ("StorageCluster", {"tls.secretRef": {"name": "mine"}}, {"tls.certManager": ISSUER}),
    ("StorageCluster", {"tls.certManager": ISSUER}, {"tls.secretRef": {"name": "mine"}}),
    (
        "StorageCluster",
        {},
        {
            "tls.certManager": ISSUER | {"serviceNames": False, "duration": "24h", "renewBefore": "8h30m"},
            "proxy.route": {"parentRefs": [{"name": "edge"}] * 2, "hostnames": ["objects.example.org"]},
        },
    ),
    ("StorageCluster", {}, {"keys.generation": 2}),
    ("Ring", {}, {"replicas": 2.5, "minPartHours": 0, "overload": 0}),
    ("StoragePolicy", {}, {"default": True, "replicas": 2, "aggregateBelow": "0", "pools": ["main"]}),
    (
        "StoragePolicy",
        {"erasureCoding": CODING},
        {"erasureCoding": CODING | {"cellSize": "65536", "packBelow": "64Ki"}, "default": True, "etag": "xxh3"},
    ),
    ("StorageQuota", {}, {"levels.1": {"name": "L1"}, "assignments": [{"account": "press", "level": "L1"}]}),
    ("StorageUser", {}, {"roles": ["admin", "reseller_admin"], "secretRef": {"name": "mine"}}),
]


@pytest.mark.parametrize(("kind", "before", "after"), FREE, ids=ids((kind, after) for kind, _, after in FREE))
def test_everything_else_can_change(
    apiserver: ApiServer, namespace: str, kind: str, before: Changes, after: Changes
) -> None:
    answer = replace(apiserver, kind, namespace, before, after)

    assert answer.status == 200, answer.message


def test_every_rule_has_been_broken() -> None:
    said = {line[-1] for table in (BAD, BAD_NAMES, FIXED) for line in table}
    rules = {
        rule["message"]
        for crd in CRDS.values()
        for _, node in walk(schema_of(crd))
        for rule in node.get("x-kubernetes-validations", [])
    }

    assert rules - said == set()


# --- kept and shown --------------------------------------------------------------------------------------------------


def test_all_kinds_are_served(apiserver: ApiServer) -> None:
    served = apiserver.get("/apis/swiftlet.io/v1alpha1").body["resources"]

    found = {one["kind"]: one for one in served if "/" not in one["name"]}
    assert {kind: one["shortNames"] for kind, one in found.items()} == {
        kind.name: [kind.short] for kind in KINDS.values()
    }
    assert all(one["categories"] == ["swiftlet"] and one["namespaced"] for one in found.values())
    parts = {f"{kind.plural}/status" for kind in KINDS.values()}
    assert {one["name"] for one in served if "/" in one["name"]} == parts | {"storageclusters/scale"}


@pytest.mark.parametrize("kind", GOOD)
def test_defaults_are_what_the_schema_says(apiserver: ApiServer, namespace: str, kind: str) -> None:
    sent = manifest(kind, {})

    stored = apiserver.create(collection(kind, namespace), sent).body

    assert stored["spec"] == with_defaults(schema_of(CRDS[kind]), sent)["spec"]


AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}]
        }
    }
}


def test_a_mistake_deep_in_an_affinity_is_refused_before_any_pod_is_made_of_it(apiserver: ApiServer) -> None:
    good = manifest("StorageCluster", {"podDefaults.affinity": AFFINITY, "pools.0.affinity": AFFINITY})
    assert apiserver.create(collection("StorageCluster", apiserver.namespace()), good).status == 201
    for wrong, sentence in (
        ({"nodeAffinty": {}}, 'unknown field "spec.podDefaults.affinity.nodeAffinty"'),
        ({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}, "topologyKey: Required value"),
    ):
        answer = apiserver.create(
            collection("StorageCluster", "default"), manifest("StorageCluster", {"podDefaults.affinity": wrong})
        )
        assert sentence in answer.message


@pytest.mark.parametrize(
    ("changes", "part", "resources"),
    [
        ({}, "proxy", {"requests": {"cpu": "100m", "memory": "256Mi"}}),
        ({"proxy.resources": {}}, "proxy", {}),
        ({"proxy.resources": {"limits": {"memory": "1Gi"}}}, "proxy", {"limits": {"memory": "1Gi"}}),
        ({}, "replicator", {"requests": {"cpu": "25m", "memory": "128Mi"}}),
        ({"redis.resources": {}}, "redis", {}),
    ],
)
def test_what_is_asked_for_by_default_can_be_changed_and_removed(
    apiserver: ApiServer, namespace: str, changes: Changes, part: str, resources: dict[str, Any]
) -> None:
    stored = apiserver.create(collection("StorageCluster", namespace), manifest("StorageCluster", changes)).body

    assert stored["spec"][part]["resources"] == resources


def test_proxies_are_scaled_and_nothing_else(apiserver: ApiServer, namespace: str) -> None:
    """What `kubectl scale` and a HorizontalPodAutoscaler do."""
    path = collection("StorageCluster", namespace)
    apiserver.create(path, manifest("StorageCluster", {}))
    assert apiserver.get(f"{path}/photos/scale").body["spec"] == {"replicas": 2}

    status = {"proxy": {"replicas": 2, "selector": "app.kubernetes.io/component=proxy"}}
    assert apiserver.patch(f"{path}/photos/status", {"status": status}).status == 200
    found = apiserver.get(f"{path}/photos/scale").body
    assert found["status"] == {"replicas": 2, "selector": "app.kubernetes.io/component=proxy"}

    assert apiserver.request("PUT", f"{path}/photos/scale", {**found, "spec": {"replicas": 5}}).status == 200
    stored = apiserver.get(f"{path}/photos").body["spec"]
    assert stored["proxy"]["replicas"] == 5
    assert stored["pools"][0]["replicas"] == 3

    refused = apiserver.patch(f"{path}/photos/scale", {"spec": {"replicas": 0}})
    assert refused.status == 422
    assert NO_PROXY in refused.message


def test_the_examples_are_accepted(apiserver: ApiServer, namespace: str) -> None:
    for file, example in load_examples():
        namespace = (
            apiserver.namespace(file.removesuffix(".yaml")) if example["kind"] == "StorageCluster" else namespace
        )
        example["metadata"]["namespace"] = namespace
        answer = apiserver.create(collection(example["kind"], namespace), example)
        assert answer.status == 201, f"{file}: {answer.message}"


def test_the_status_is_written_apart_and_columns_find_the_condition_by_its_type(
    apiserver: ApiServer, namespace: str
) -> None:
    path = collection("StorageCluster", namespace)
    condition = {"observedGeneration": 1, "lastTransitionTime": "2026-11-21T12:00:00Z"}
    progressing = condition | {"type": "Progressing", "status": "True", "reason": "Rolling", "message": "1 of 3"}
    ready = condition | {"type": "Ready", "status": "False", "reason": "PodsMissing", "message": "wait for nodes"}
    status = {"conditions": [progressing, ready], "endpoint": "http://photos.default.svc"}

    created = apiserver.create(path, manifest("StorageCluster", {}) | {"status": status}).body
    written = apiserver.patch(f"{path}/photos/status", {"status": status}).body
    table = apiserver.get(path, accept=TABLE).body

    assert "status" not in created
    assert written["status"] == status
    assert written["metadata"]["generation"] == created["metadata"]["generation"]
    (row,) = table["rows"]
    shown = dict(zip((column["name"] for column in table["columnDefinitions"]), row["cells"], strict=True))
    assert shown.pop("Age")
    assert shown == {
        "Name": "photos",
        "Ready": "False",
        "Reason": "PodsMissing",
        "Endpoint": "http://photos.default.svc",
        "Message": "wait for nodes",
    }


def test_two_hands_can_each_apply_a_pool(apiserver: ApiServer, namespace: str) -> None:
    path = f"{collection('StorageCluster', namespace)}/photos"
    head = {"apiVersion": "swiftlet.io/v1alpha1", "kind": "StorageCluster", "metadata": {"name": "photos"}}

    for hand in ("one", "two"):
        body = head | {"spec": {"pools": [POOL | {"name": hand}]}}
        answer = apiserver.request("PATCH", f"{path}?fieldManager={hand}", body, APPLY_PATCH)
        assert answer.status in (200, 201), answer.message

    assert [pool["name"] for pool in apiserver.get(path).body["spec"]["pools"]] == ["one", "two"]


def test_usage_is_kept_and_held_to_its_form(apiserver: ApiServer, namespace: str) -> None:
    counts = {"containers": 1, "objects": 2**62, "bytes": 3}
    account = {"account": "press", "level": "L1", **counts, "percent": 999}
    quota = {"countedAt": "2027-01-15T08:00:00Z", "accounts": [account]}
    user = {"countedAt": "2027-01-15T08:00:00Z", **counts}
    for kind, usage in (("StorageQuota", quota), ("StorageUser", user)):
        path = collection(kind, namespace)
        apiserver.create(path, manifest(kind, {}))
        kept = apiserver.patch(f"{path}/photos/status", {"status": {"usage": usage}})
        assert kept.status == 200, kept.message
        assert kept.body["status"]["usage"] == usage
        refused = apiserver.patch(f"{path}/photos/status", {"status": {"usage": {**usage, "countedAt": "now"}}})
        assert refused.status == 422
    twice = {**quota, "accounts": [account, account]}
    path = collection("StorageQuota", namespace)
    assert apiserver.patch(f"{path}/photos/status", {"status": {"usage": twice}}).status == 422


def test_conditions_are_held_to_their_form(apiserver: ApiServer, namespace: str) -> None:
    path = collection("Ring", namespace)
    apiserver.create(path, manifest("Ring", {}))
    bad = {"type": "Ready", "status": "Yes", "reason": "", "message": "", "lastTransitionTime": "now"}

    answer = apiserver.patch(f"{path}/photos/status", {"status": {"conditions": [bad]}})

    assert answer.status == 422
    assert set(sentences(answer)) >= {"status.conditions[0].status", "status.conditions[0].reason"}
