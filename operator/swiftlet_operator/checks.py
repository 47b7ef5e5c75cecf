"""Finds what is wrong with a cluster and the objects around it: a chain of pure checks that reads like a list.

Each check looks at one thing and says for each object that it concerns whether it is violated. While the cluster
violates one, the specs that were accepted last stand in (`swiftlet_operator.plan.accepted`); a violation of another
object leaves that object out.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from swiftlet.crd import Pool, RdmaSpec, Resource, StoragePolicySpec, StorageUserSpec, quantity_bytes
from swiftlet.documents import read_document
from swiftlet.ring.model import Coding
from swiftlet_operator import coding, regions
from swiftlet_operator.build import network
from swiftlet_operator.build.ring_maps import BUILDER_LABEL
from swiftlet_operator.build.secrets import credentials_key, credentials_name, keys_copy_name, keys_name
from swiftlet_operator.build.settings import HASH_SUFFIX, POLICIES_FILE, TLS_FILES
from swiftlet_operator.build.site import CONTAINER, PROXY, STORAGE, Policy, all_groups, all_proxies
from swiftlet_operator.certificates import unusable
from swiftlet_operator.keys import are_lost, copy_of, data_of, lacking, made_again, suffixes_differ
from swiftlet_operator.logins import refusals
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    CONFIG_MAP,
    POOL_LABEL,
    PRIORITY_CLASS,
    SECRET,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
    Manifest,
    labels_of,
    name_of,
)
from swiftlet_operator.world import World

IMPLICIT = Policy(0, "Policy-0", default=True)
"""The policy of a cluster without any StoragePolicy."""
MAX_GROUP_NAME = 52
"""Longer names of StatefulSets don't fit the labels that Kubernetes derives from them."""
_RESERVED = frozenset({"container", "proxy", "metadata", "redis"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule is violated, by the object called `name` of this kind; the message says what to do."""

    reason: str
    message: str
    violated: bool
    kind: str = "StorageCluster"
    name: str = ""


Check = Callable[[World], Iterator[Verdict]]

_REMEMBERED = 256
"""The number of policies files that are remembered, as each is read several times in a reconcile of its cluster."""

KEYS_LOST = "KeysLost"
KEY_REASONS = frozenset({KEYS_LOST, "KeysIncomplete", "KeysDiffer"})
TLS_REASONS = frozenset({"TLSSecretMissing", "TLSSecretIncomplete", "TLSSecretUnusable"})
"""Reasons about what is wrong with Secrets, not with a spec."""
AWAITED = frozenset({"CertificateNotIssued"})
"""Reasons about what is being made, and is waited for."""


def check(world: World) -> list[Verdict]:
    """Return all verdicts, in the order of `CHECKS`."""
    return [verdict for one in CHECKS for verdict in one(world)]


def policies_of(world: World) -> tuple[Policy, ...]:
    """Return the policies that count: those of the StoragePolicies, and the implicit one where it is or was in use."""
    ordered = sorted(world.policies, key=lambda one: (one.spec.index, one.meta.name))
    # A policy that is being deleted is the default until another one is.
    chosen = any(one.spec.default and not one.meta.deleting for one in ordered)
    made = tuple(_policy(one, chosen) for one in ordered if counts(world, one))
    if not made:
        return (IMPLICIT,)
    if all(one.spec.index for one in ordered) and (
        live_policies(world).get(0) == IMPLICIT.name or 0 in _restored_policies(world)
    ):
        # A first policy of the user's changes nothing for clients that name none, unless it says so.
        return (Policy(0, IMPLICIT.name, default=not any(policy.default for policy in made)), *made)
    return made


def _policy(one: Resource[StoragePolicySpec], chosen: bool) -> Policy:
    spec, going = one.spec, one.meta.deleting
    default = spec.default and not (going and chosen)
    deprecated = spec.deprecated or (going and not default)
    return Policy(
        spec.index,
        spec.name,
        default,
        spec.replicas,
        spec.pools,
        deprecated,
        aggregate_below=spec.aggregate_below_bytes,
        etag=spec.etag,
        write_quorum=spec.write_quorum,
        coding=spec.coding,
        pack_below=spec.pack_below_bytes,
    )


def counts(world: World, one: Resource[StoragePolicySpec]) -> bool:
    """Return whether a StoragePolicy is a policy of the cluster: it is wanted, or deleted and something may use it."""
    if not one.meta.deleting:
        return True
    index = one.spec.index
    twins = (other for other in world.policies if other.spec.index == index and other.spec.name == one.spec.name)
    if any(not other.meta.deleting for other in twins):
        return False
    in_use = live_policies(world).get(index) == one.spec.name and index not in world.retired
    return in_use or index in _restored_policies(world)


def pools_of(world: World, policy: Policy) -> list[Pool]:
    """Return the pools that keep a policy's objects."""
    return [
        pool
        for pool in world.cluster.spec.pools
        if "object" in pool.roles and (not policy.pools or pool.name in policy.pools)
    ]


def replicas_of(world: World, ring: str, policy: Policy | None = None) -> float:
    """Return the replicas of a ring: the policy's if it has any, or else the Ring's, or else the cluster's.

    With erasure coding there is one for each fragment.
    """
    if policy is not None and policy.coding is not None:
        return policy.coding.fragments
    if policy is not None and policy.replicas is not None:
        return policy.replicas
    found = next((one.spec.replicas for one in world.ring_objects if one.spec.ring_name == ring), None)
    return world.cluster.spec.rings.replicas if found is None else found


def offers(node: Manifest, rdma: RdmaSpec) -> bool:
    """Return whether a node has the RDMA resource."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    fits = rdma.node_selector.items() <= labels_of(node).items()
    return fits and str(allocatable.get(rdma.resource, "0")) != "0"


def _damaged(world: World) -> Iterator[Verdict]:
    for one in world.unreadable:
        yield Verdict("Unreadable", one.problem, True, one.kind.kind, name_of(one.manifest))
        if one.kind.kind in ("Ring", "StoragePolicy"):
            # Without the ring nobody knows where objects are.
            yield Verdict("Unreadable", f"{one.kind.kind} {name_of(one.manifest)}: {one.problem}", True)


def _pool_names(world: World) -> Iterator[Verdict]:
    taken = [pool.name for pool in world.cluster.spec.pools if pool.name in _RESERVED]
    yield Verdict(
        "PoolNameReserved", f"rename pool {', '.join(taken)}: the cluster has a part of that name", bool(taken)
    )
    names = Counter(group.name for group in all_groups(world.cluster.meta.name, world.cluster.spec))
    twice = [name for name, count in names.items() if count > 1]
    message = f"two pools and zones make one StatefulSet {', '.join(twice)}; rename a pool"
    yield Verdict("PoolNamesCollide", message, bool(twice))
    long = [name for name in names if len(name) > MAX_GROUP_NAME]
    message = (
        f"{', '.join(long)} is longer than {MAX_GROUP_NAME} characters; shorten the names of cluster, pool or zone"
    )
    yield Verdict("NameTooLong", message, bool(long))


def _object_pool(world: World) -> Iterator[Verdict]:
    none = not any("object" in pool.roles for pool in world.cluster.spec.pools)
    yield Verdict("NoObjectPool", "no pool has the role object; give it to one", none)


def _storage_grows(world: World) -> Iterator[Verdict]:
    spec = world.cluster.spec
    sizes: dict[tuple[str, str | None], tuple[str, str]] = {
        (STORAGE, pool.name): (f"storage.size of pool {pool.name}", pool.storage.size) for pool in spec.pools
    } | {(CONTAINER, None): ("container.storage.size", spec.container.storage.size)}
    largest: dict[tuple[str, str], str] = {}
    for claim in world.claims:
        labels, asked = labels_of(claim), claim["spec"]["resources"]["requests"]["storage"]
        found = sizes.get((labels.get(COMPONENT_LABEL, ""), labels.get(POOL_LABEL)))
        if found is not None and quantity_bytes(largest.get(found, found[1])) < quantity_bytes(asked):
            largest[found] = asked
    smaller = "; ".join(
        f"{field} is {size}, and volumes of {asked} can't shrink: set it to {asked} or more"
        for (field, size), asked in sorted(largest.items())
    )
    message = f"{smaller or 'no volume is larger than it should be'}; or add a smaller pool and drain this one"
    yield Verdict("StorageShrunk", message, bool(largest))


def _keys(world: World) -> Iterator[Verdict]:
    name, copy = keys_name(world.cluster.meta.name), keys_copy_name(world.cluster.meta.name)
    live = world.child(SECRET, name)
    why = f" ({world.unsealed.problem})" if world.unsealed.problem else ""
    message = (
        f"Secret {name} is gone, and so is {copy}, but volumes or rings of the cluster are there, and no sealed copy "
        f"of the keys gives them back{why}: restore them from a backup (kubectl swiftlet restore FILE), for no object "
        "can be found without them, or delete the volume claims and the builders (ConfigMaps and Secrets) to begin anew"
    )
    yield Verdict(KEYS_LOST, message, are_lost(world) and made_again(world) is None)
    missing = [key for key in lacking(live) if not data_of(copy_of(world)).get(key)]
    message = f"Secret {name} lacks {', '.join(missing)}; restore it from a backup"
    yield Verdict("KeysIncomplete", message, live is not None and bool(missing))
    message = (
        f"Secrets {name} and {copy} have different values of {HASH_SUFFIX}, and with the wrong one no object is found: "
        "put the one that the cluster was made with into both (a pod's log of a wrong one says that a device was made "
        "with another)"
    )
    yield Verdict("KeysDiffer", message, suffixes_differ(world))


def _policy_set(world: World) -> Iterator[Verdict]:
    policies = policies_of(world)
    defaults = [policy.name for policy in policies if policy.default]
    message = f"StoragePolicies {', '.join(defaults)} all have default: true; leave it to one"
    yield Verdict("TwoDefaultPolicies", message, len(defaults) > 1)
    yield Verdict("NoDefaultPolicy", "set default: true on one StoragePolicy", not defaults)
    both = [policy.name for policy in policies if policy.default and policy.deprecated]
    message = f"StoragePolicy {', '.join(both)} is deprecated and the default; set default: true on another one"
    yield Verdict("DefaultDeprecated", message, bool(both))
    # Some rings of a policy that is being deleted may be gone already.
    going = {(one.spec.index, one.spec.name) for one in world.policies if one.meta.deleting and not counts(world, one)}
    taken = [index for index, _ in going - {(one.index, one.name) for one in policies}]
    indexes = _twice(str(index) for index in [*(policy.index for policy in policies), *taken])
    message = f"index {', '.join(indexes)} is given to two StoragePolicies; delete the one that came last"
    yield Verdict("PolicyIndexTwice", message, bool(indexes))
    names = _twice(policy.name.lower() for policy in policies)
    message = f"name {', '.join(names)} is given to two StoragePolicies; delete the one that came last"
    yield Verdict("PolicyNameTwice", message, bool(names))


def _policy_history(world: World) -> Iterator[Verdict]:
    now = {policy.index: policy.name for policy in policies_of(world)}
    before = {index: name for index, name in live_policies(world).items() if index not in world.retired}
    gone = [f"{name} (index {index})" for index, name in before.items() if index not in now]
    gone += [f"of index {index}" for index in sorted(_restored_policies(world)) if index not in now]
    message = f"StoragePolicy {', '.join(gone)} is gone but may have objects; make it again"
    yield Verdict("PolicyRemoved", message, bool(gone))
    reused = [
        f"{index} was {name} and is now {now[index]}"
        for index, name in before.items()
        if index in now and now[index] != name and name != IMPLICIT.name
    ]
    message = (
        f"a policy's index is never given to another: {', '.join(reused)}; delete the new StoragePolicy, make the old "
        "one again, and take a new index"
    )
    yield Verdict("PolicyIndexReused", message, bool(reused))


def _policy_coding(world: World) -> Iterator[Verdict]:
    before = {index: one.coding for index, one in _live(world).items() if _has_ring(world, index)}
    changed = [coding.changed(one, before[one.index]) for one in policies_of(world) if one.index in before]
    message = (
        f"policy {'; policy '.join(filter(None, changed))}: nobody could read them. Put it back as it was, and make "
        "another StoragePolicy with an index of its own, to which `swiftlet policy move` brings the containers"
    )
    yield Verdict("PolicyCodingChanged", message, any(changed))


def _policy_pools(world: World) -> Iterator[Verdict]:
    for policy in policies_of(world):
        pools = {pool.name for pool in pools_of(world, policy)}
        unknown = [name for name in policy.pools if name not in pools]
        message = (
            f"policy {policy.name} names pool {', '.join(unknown)}, which is not there or keeps no objects; correct "
            "the pools of the StoragePolicy, or add the pool"
        )
        yield Verdict("PolicyPoolUnknown", message, bool(unknown))


def _proxy_regions(world: World) -> Iterator[Verdict]:
    spec = world.cluster.spec
    unknown = sorted(set(spec.proxy.regions) - {pool.region for pool in spec.pools})
    message = (
        f"proxy.regions names {', '.join(unknown)}, which is the region of no pool; correct it, or set region of the "
        "pools there"
    )
    yield Verdict("ProxyRegionUnknown", message, bool(unknown))


def _policy_regions(world: World) -> Iterator[Verdict]:
    if world.cluster.spec.federation is not None:
        # Regions of other members count as well, which their rings know.
        return
    spec = world.cluster.spec
    proxied = {pool.region for pool in spec.pools if PROXY in pool.roles}
    proxied |= {one.region for one in all_proxies(spec) if one.region is not None}
    for policy in policies_of(world):
        replicas = replicas_of(world, f"object-{policy.index}", policy)
        yield from (
            Verdict(reason, f"policy {policy.name}: {message}", True)
            for reason, message in regions.problems(policy, pools_of(world, policy), proxied, replicas)
        )


def _enough_devices(world: World) -> Iterator[Verdict]:
    if world.cluster.spec.federation is not None:
        # Those of other members count as well; the first layout of a ring waits for as many as it needs.
        return
    for policy in policies_of(world):
        if policy.coding is not None:
            found = coding.problems(policy, policy.coding, pools_of(world, policy))
            yield from (Verdict(reason, message, True) for reason, message in found)
            continue
        ring = f"object-{policy.index}"
        needed = math.ceil(replicas_of(world, ring, policy))
        devices = sum(pool.device_count for pool in pools_of(world, policy))
        message = (
            f"policy {policy.name} keeps {needed} replicas but its pools have {devices} devices; "
            "add pods to a pool or lower the replicas"
        )
        yield Verdict("TooFewDevices", message, devices < needed)
    for ring in ("account", "container"):
        needed = math.ceil(replicas_of(world, ring))
        servers = world.cluster.spec.container.replicas
        message = (
            f"ring {ring} keeps {needed} replicas but there are {servers} container servers; "
            "raise spec.container.replicas or lower the ring's replicas"
        )
        yield Verdict("TooFewContainerServers", message, servers < needed)


def _ring_set(world: World) -> Iterator[Verdict]:
    twice = _twice(one.spec.ring_name for one in world.ring_objects)
    yield Verdict("RingTwice", f"two Ring objects are for {', '.join(twice)}; delete one", bool(twice))
    known = {"account", "container", *(f"object-{policy.index}" for policy in policies_of(world))}
    for one in world.ring_objects:
        message = f"there is no StoragePolicy of index {one.spec.policy_index}; make one or delete this Ring"
        yield Verdict("PolicyUnknown", message, one.spec.ring_name not in known, "Ring", one.meta.name)


def _rdma_not_encrypted(world: World) -> Iterator[Verdict]:
    spec = world.cluster.spec
    asking = {"spec.rdma": spec.rdma, "proxy.rdma": spec.proxy.rdma}
    asking |= {f"pools[{pool.name}].rdma": pool.rdma for pool in spec.pools}
    fast = [where for where, rdma in asking.items() if rdma is not None and rdma.wanted]
    message = (
        f"{', '.join(fast)}: nothing encrypts what goes by RDMA; set mode to disabled there, or spec.encryption to none"
    )
    yield Verdict("RDMANotEncrypted", message, spec.encryption == "transport" and bool(fast))


def _rdma_named(world: World) -> Iterator[Verdict]:
    spec = world.cluster.spec
    asking = {**{f"pool {pool.name}": spec.rdma_of(pool) for pool in spec.pools}, "proxy": spec.rdma_of(spec.proxy)}
    nameless = [who for who, rdma in asking.items() if rdma.mode == "required" and rdma.resource is None]
    message = f"{', '.join(nameless)}: RDMA is required but no resource is named; set rdma.resource"
    yield Verdict("RDMAResourceMissing", message, bool(nameless))


def _networks(world: World) -> Iterator[Verdict]:
    found = list(network.problems(world.cluster.spec))
    yield Verdict("NetworkUnusable", "; ".join(found) or "all networks that spec.network names are some", bool(found))


def _quotas(world: World) -> Iterator[Verdict]:
    for one in world.quotas:
        levels = {level.name for level in one.spec.levels}
        unknown = sorted({entry.level for entry in one.spec.assignments if entry.level not in levels})
        message = f"assignments name level {', '.join(unknown)}, which spec.levels does not have"
        yield Verdict("LevelUnknown", message, bool(unknown), "StorageQuota", one.meta.name)
        first = min(other.meta.name for other in world.quotas)
        message = f"StorageQuota {first} is for this cluster already; merge this one into it"
        yield Verdict("QuotaTwice", message, one.meta.name != first, "StorageQuota", one.meta.name)


def _users(world: World) -> Iterator[Verdict]:
    for one in world.users:
        for reason, message, is_so in refusals(world, one):
            yield Verdict(reason, message, is_so, "StorageUser", one.meta.name)
        yield _secret(world, one)


def _secret(world: World, user: Resource[StorageUserSpec]) -> Verdict:
    name, key = credentials_name(user), credentials_key(user)
    secret = world.secrets.get(name)
    # A generated Secret that does not exist will be made.
    lacking = user.spec.secret_ref is not None if secret is None else not (secret.get("data") or {}).get(key)
    message = f"Secret {name} with an entry {key} is not there; make it, or remove secretRef to have one generated"
    return Verdict("SecretMissing", message, lacking, "StorageUser", user.meta.name)


def _tls(world: World) -> Iterator[Verdict]:
    spec, cluster = world.cluster.spec.tls, world.cluster.meta.name
    if (name := spec.secret_name(cluster)) is None:
        return
    secret = world.secrets.get(name)
    lacking = [key for key in TLS_FILES if secret is not None and not (secret.get("data") or {}).get(key)]
    problem = _pair_problem(secret) if secret is not None and not lacking else ""
    if spec.secret_ref is None:
        found = f"lacks {', '.join(lacking)}" if lacking else problem and f"can't be served with: {problem}"
        message = (
            f"cert-manager has issued no pair yet: Secret {name} {'is not there' if secret is None else found}; "
            "the condition CertificateReady says what it waits for"
        )
        yield Verdict("CertificateNotIssued", message, secret is None or bool(found))
        return
    message = f"Secret {name} of spec.tls.secretRef is not there; make it, or remove spec.tls"
    yield Verdict("TLSSecretMissing", message, secret is None)
    message = f"Secret {name} of spec.tls.secretRef lacks {', '.join(lacking)}; add what is missing"
    yield Verdict("TLSSecretIncomplete", message, bool(lacking))
    message = f"Secret {name} of spec.tls.secretRef can't be served with: {problem}; put a matching pair there"
    yield Verdict("TLSSecretUnusable", message, bool(problem))


def _realms(world: World) -> Iterator[Verdict]:
    sync = world.cluster.spec.container_sync
    if sync is None:
        return
    name, key = sync.realms_secret_ref.name, sync.realms_secret_ref.key
    secret = world.secrets.get(name)
    lacking = secret is None or not (secret.get("data") or {}).get(key)
    message = (
        f"Secret {name} of spec.containerSync.realmsSecretRef with an entry {key} is not there; make it, or remove "
        "spec.containerSync"
    )
    yield Verdict("RealmsSecretMissing", message, lacking)


def _named_for_pods(world: World) -> Iterator[Verdict]:
    shapes = [world.cluster.spec.shape_of(one) for one in world.cluster.spec.components]
    gone = _not_there(world, SERVICE_ACCOUNT, (one.service_account_name for one in shapes))
    message = (
        f"ServiceAccount {gone} is not there, and no pod could be made with it: make it, or correct serviceAccountName "
        "in podDefaults and the components"
    )
    yield Verdict("ServiceAccountMissing", message, bool(gone))
    gone = _not_there(world, PRIORITY_CLASS, (one.priority_class_name for one in shapes))
    message = (
        f"PriorityClass {gone} is not there, and no pod could be made with it: make it, or correct priorityClassName "
        "in podDefaults and the components"
    )
    yield Verdict("PriorityClassMissing", message, bool(gone))


def _not_there(world: World, kind: Kind, names: Iterable[str | None]) -> str:
    known = {name for name in names if name is not None and (kind.kind, name) in world.named}
    return ", ".join(sorted(name for name in known if world.named[kind.kind, name] is None))


def _pair_problem(secret: Manifest) -> str:
    try:
        certificate, key = (base64.b64decode(secret["data"][name], validate=True) for name in TLS_FILES)
    except ValueError:
        return "its entries are not base64"
    return unusable(certificate, key)


def _storage_class(world: World) -> Iterator[Verdict]:
    spec = world.cluster.spec
    asked = {pool.name: (f"storage.className of pool {pool.name}", pool.storage.class_name) for pool in spec.pools}
    container = ("container.storage.className", spec.container.storage.class_name)
    wrong = []
    for group in all_groups(world.cluster.meta.name, spec):
        field, wanted = asked[group.pool] if group.pool is not None else container
        live = world.child(STATEFUL_SET, group.name)
        if live is None or class_in(live) == wanted or not has_volumes(world, group.name):
            continue
        made = class_in(live)
        wrong.append(f"{field} can't change, for there are volumes: " + (f"set it to {made}" if made else "remove it"))
    message = f"{'; '.join(dict.fromkeys(wrong))}; or add a pool with the other class and drain this one"
    yield Verdict("StorageClassChanged", message, bool(wrong))


def class_in(stateful_set: Manifest) -> str | None:
    """Return the class that the templates of a StatefulSet's claims name, None for the default one."""
    templates = stateful_set["spec"].get("volumeClaimTemplates") or []
    return next((one["spec"].get("storageClassName") for one in templates), None)


def claims_of_set(world: World, name: str) -> list[Manifest]:
    """Return the claims of a StatefulSet's pods: `d0-NAME-2` and so on."""
    return [one for one in world.claims if name_of(one).partition("-")[2].rpartition("-")[0] == name]


def has_volumes(world: World, name: str) -> bool:
    """Return whether a pod of a StatefulSet may have a volume: one is on a node, or one of their claims is bound."""
    placed = (pod["spec"].get("nodeName") for pod in world.pods if name_of(pod).rpartition("-")[0] == name)
    bound = (one["spec"].get("volumeName") for one in claims_of_set(world, name))
    return any(placed) or any(bound)


CHECKS: tuple[Check, ...] = (
    _damaged,
    _pool_names,
    _object_pool,
    _storage_grows,
    _storage_class,
    _keys,
    _policy_set,
    _policy_history,
    _policy_coding,
    _policy_pools,
    _proxy_regions,
    _policy_regions,
    _enough_devices,
    _ring_set,
    _rdma_named,
    _rdma_not_encrypted,
    _networks,
    _tls,
    _realms,
    _named_for_pods,
    _quotas,
    _users,
)


def _twice(values: Iterator[str]) -> list[str]:
    return sorted(value for value, count in Counter(values).items() if count > 1)


def _restored_policies(world: World) -> set[int]:
    """Return policies whose rings were kept when the cluster was deleted; none when there are settings, which know
    better.
    """
    if world.child(CONFIG_MAP, f"{world.cluster.meta.name}-settings") is not None:
        return set()
    rings = {labels_of(one).get(BUILDER_LABEL, "") for one in world.children.values()}
    return {int(ring.removeprefix("object-")) for ring in rings if ring.startswith("object-")}


def live_policies(world: World) -> dict[int, str]:
    """Return the policies that the services know now, name by index; none when there are no settings yet."""
    return {index: one.name for index, one in _live(world).items()}


@dataclass(frozen=True, slots=True)
class _Live:
    """A policy that the services know now, and its coding in words."""

    name: str
    coding: str


def _live(world: World) -> Mapping[int, _Live]:
    live = world.child(CONFIG_MAP, f"{world.cluster.meta.name}-settings")
    return _policies_in(str(((live or {}).get("data") or {}).get(POLICIES_FILE, "")))


def _has_ring(world: World, index: int) -> bool:
    """Return whether a policy's ring has been laid out, so that there may be objects."""
    ring = f"object-{index}"
    return any(labels_of(one).get(BUILDER_LABEL) == ring for one in world.children.values())


@lru_cache(maxsize=_REMEMBERED)
def _policies_in(text: str) -> Mapping[int, _Live]:
    try:
        document: Any = read_document(text) or []
        return {int(entry["index"]): _Live(str(entry["name"]), _coding_in(entry)) for entry in document}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        # Somebody edited it; it will be written anew.
        return {}


def _coding_in(entry: Mapping[str, Any]) -> str:
    fields = entry.get("coding")
    return coding.described(Coding(**fields) if fields is not None else None)
