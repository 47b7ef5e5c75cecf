"""What a member of a federation takes from the others: devices, rings, and their word that they use a ring. Pure.

The leader builds the rings with the devices of all members; each of the others publishes the leader's rings as they
are. Devices of other members are known by their nodes' names, which have the member's name before them.

**No ring changes without everybody.** The leader makes a new version only while each member in its spec has a fresh
statement that names this leader. Two clusters that both lead would each need the word of the other, so a cluster that
is cut off, and does not know that others have chosen a new leader, changes nothing.

Fault model: a member is away, has an old ring, names another leader, or has other policies, or devices of the same
names. Then rings stay as they are, and all services go on with those they have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace

from swiftlet.crd import FederationSpec
from swiftlet_operator.build.site import Policy
from swiftlet_operator.checks import policies_of
from swiftlet_operator.rings import Known, Task, Wanted
from swiftlet_operator.statements import DeviceSaid, PolicySaid, RingSaid, Statement
from swiftlet_operator.world import World


def follows(world: World) -> bool:
    """Return whether another member builds the rings of this cluster."""
    federation = world.cluster.spec.federation
    return federation is not None and not federation.leads


def node_name(world: World, node: str) -> str:
    """Return the name of a node in rings."""
    federation = world.cluster.spec.federation
    return node if federation is None else f"{federation.member}/{node}"


def foreign(world: World, known: Known) -> frozenset[str]:
    """Return the devices of a ring that are of other members."""
    federation = world.cluster.spec.federation
    if federation is None:
        return frozenset()
    return frozenset(name for name, node in known.nodes.items() if not _is_own(federation, node))


def _is_own(federation: FederationSpec, node: str) -> bool:
    member, slash, _ = node.partition("/")
    # A store that became a federation has nodes without a member until its rings are laid out again.
    return member == federation.member if slash else federation.leads


def with_members(world: World, task: Task, known: Known | None) -> Task:
    """Return a ring's task with the devices of other members: as they say, or as the ring has them."""
    federation = world.cluster.spec.federation
    if federation is None:
        return task
    others = [] if federation.leads else _as_they_are(known, lambda node: not _is_own(federation, node))
    for member in federation.members if federation.leads else ():
        said = world.federated.said(member.name)
        if said is None:
            others += _as_they_are(known, lambda node, name=member.name: node.startswith(f"{name}/"))  # type: ignore[misc]
        else:
            others += [_wanted(member.name, one) for one in said.devices if task.ring in one.rings]
    names = {one.name for one in task.wanted}
    others = [one for one in others if one.name not in names]
    return replace(task, wanted=(*task.wanted, *others), foreign=frozenset(one.name for one in others))


def _wanted(member: str, said: DeviceSaid) -> Wanted:
    node = None if said.node is None else f"{member}/{said.node}"
    return Wanted(
        said.name, said.host, said.port, said.device, said.region, said.weight, said.zone, node, full=said.full
    )


def _as_they_are(known: Known | None, is_meant: Callable[[str], bool]) -> list[Wanted]:
    return [
        Wanted(one.name, one.host, one.port, one.device, one.region, one.weight, one.zone, one.node)
        for one in (known.devices if known is not None else ())
        if is_meant(one.node)
    ]


def held(world: World, task: Task, version: int, content: str) -> str:
    """Return why the leader may not change a ring now because of other members; empty when it may.

    `version` and `content` are those of the ring that this cluster has, 0 and empty when there is none.
    """
    federation = world.cluster.spec.federation
    if federation is None or not federation.leads:
        return ""
    own = {one.name for one in task.own}
    for member in federation.members:
        said = world.federated.said(member.name)
        if said is None:
            found = world.federated.heard.get(member.name)
            return f"member {member.name} is not heard ({found.reason if found is not None else 'NotRead'})"
        if said.leader != federation.leader:
            return f"member {member.name} names {said.leader} as the leader"
        ring = said.rings.get(task.ring)
        if ring is not None and ring.version > version:
            return f"member {member.name} has version {ring.version} of ring {task.ring}, which is newer"
        if ring is not None and ring.version == version and content and ring.content != content:
            return f"member {member.name} has another version {version} of ring {task.ring}"
        if twice := collisions(world, own, said):
            return f"member {member.name} has devices named {', '.join(twice[:3])}, too"
        if differing := differences(world, said):
            return f"member {member.name} has other StoragePolicies ({differing[0]})"
    return ""


def collisions(world: World, own: Iterable[str], said: Statement) -> list[str]:
    """Return names of a member's devices that this cluster or another member has as well."""
    taken = set(own)
    for name, heard in world.federated.heard.items():
        if heard.statement is not None and name != said.member:
            taken |= {one.name for one in heard.statement.devices}
    return sorted(one.name for one in said.devices if one.name in taken)


def policies_said(world: World) -> tuple[PolicySaid, ...]:
    """Return the cluster's policies as far as all members have to have the same; each chooses its own pools."""
    return tuple(PolicySaid(index=one.index, name=one.name, settings=_settings(one)) for one in policies_of(world))


def _settings(policy: Policy) -> str:
    fields = {name: value for name, value in asdict(policy).items() if name not in ("index", "name", "pools")}
    return json.dumps(fields, sort_keys=True)


def differences(world: World, said: Statement) -> list[str]:
    """Return what is different in a member's policies, a sentence's part for each policy."""
    here, there = _by_index(policies_said(world)), _by_index(said.policies)
    found = [f"it lacks {here[index].name}, index {index}" for index in sorted(here.keys() - there.keys())]
    found += [f"it has {there[index].name}, index {index}, besides" for index in sorted(there.keys() - here.keys())]
    for index in sorted(here.keys() & there.keys()):
        ours, theirs = here[index], there[index]
        if ours.name != theirs.name:
            found.append(f"index {index} is {ours.name} here and {theirs.name} there")
        elif ours.settings != theirs.settings:
            found.append(f"{ours.name} differs in {', '.join(_differing(ours.settings, theirs.settings))}")
    return found


def _by_index(policies: Iterable[PolicySaid]) -> dict[int, PolicySaid]:
    return {one.index: one for one in policies}


def _differing(ours: str, theirs: str) -> list[str]:
    try:
        first, second = json.loads(ours), json.loads(theirs)
        return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    except (ValueError, AttributeError, TypeError):
        return ["its settings"]


def since_of(world: World, ring: str) -> int:
    """Return when the leader laid out the version of a ring that it has, 0 when that is not known."""
    said = _said_by_leader(world, ring)
    return said.since_s if said is not None else 0


def chunks_said(world: World, ring: str) -> int:
    """Return how many ConfigMaps a ring of the leader has, 0 when that is not known or this cluster leads."""
    said = _said_by_leader(world, ring)
    return said.chunks if said is not None else 0


def _said_by_leader(world: World, ring: str) -> RingSaid | None:
    federation = world.cluster.spec.federation
    said = world.federated.said(federation.leader) if federation is not None else None
    return said.rings.get(ring) if said is not None else None


def others_troubled(world: World) -> str:
    """Return which other members have pods with data away or are not heard, as a sentence's part; empty for none."""
    federation = world.cluster.spec.federation
    if federation is None:
        return ""
    if federation.leads:
        found = troubled_members(world, federation)
    else:
        said = world.federated.said(federation.leader)
        found = [federation.leader] if said is None else [one for one in said.troubled if one != federation.member]
    return f"member {', '.join(found)} of the federation has pods away or is not heard" if found else ""


def troubled_members(world: World, federation: FederationSpec) -> list[str]:
    """Return the members that the leader does not know to be whole."""
    said = ((one.name, world.federated.said(one.name)) for one in federation.members)
    return [name for name, one in said if one is None or one.busy]


def late_members(world: World, versions: Mapping[str, int]) -> list[str]:
    """Return members with services that may still use older versions of some ring, or don't say."""
    return [f"member {name}" for name, uses in _uses_of_others(world) if not _is_up_to_date(uses, versions)]


def _is_up_to_date(uses: Mapping[str, int] | None, versions: Mapping[str, int]) -> bool:
    return uses is not None and all(version >= versions.get(ring, 0) for ring, version in uses.items())


def _uses_of_others(world: World) -> Iterator[tuple[str, Mapping[str, int] | None]]:
    """Yield each member that this one reads, with what its services use; the leader speaks for all."""
    federation = world.cluster.spec.federation
    for member in federation.heard if federation is not None else ():
        said = world.federated.said(member.name)
        if federation is not None and federation.leads:
            yield member.name, said.uses if said is not None else None
        else:
            yield member.name, said.everywhere if said is not None else None


def used_everywhere(world: World, own: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the oldest version of each ring that any member uses, as the leader knows; None while one does not say."""
    found: dict[str, int] = {}
    for uses in (own, *(uses for _, uses in _uses_of_others(world))):
        if uses is None:
            return None
        for ring, version in uses.items():
            found[ring] = min(version, found.get(ring, version))
    return found
