"""What a member of a federation tells the others, whose turn it is to take pods down, and `FederationReady`. Pure.

At any moment one member may restart pods, and let pods be evicted: a partition has replicas in several clusters, and
each operator sees the pods of its own. The leader says whose turn it is: its own, until another member asks for it, and
then that member's until it has nothing left to restart and is whole. It may go on only while no other member has pods
away or behind.

Fault model: a member is away: nobody else's pods are taken down until it is heard again, as it may have some away. The
leader is away: nobody's turn can be known, and restarts wait; all pods go on serving.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace

from swiftlet.crd import Fact, FederationSpec
from swiftlet_operator.build.names import statement_map
from swiftlet_operator.build.site import Site
from swiftlet_operator.keys import cluster_keys, keys_of
from swiftlet_operator.manifests import CONFIG_MAP, Manifest
from swiftlet_operator.plan.cordoned import cordoned
from swiftlet_operator.plan.cordons import TYPE as NODES_CORDONED
from swiftlet_operator.plan.cordons import Disruptions
from swiftlet_operator.plan.federation import (
    collisions,
    differences,
    late_members,
    others_troubled,
    policies_said,
    troubled_members,
    used_everywhere,
)
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.plan.sync import device_report, oldest_used, pod_of
from swiftlet_operator.plan.upgrades import Turn
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.statements import (
    MAX_STATEMENT_BYTES,
    RENEWED_S,
    STATEMENT,
    DeviceSaid,
    RefusedStatement,
    RingSaid,
    Statement,
    digest_of_chunks,
    essence,
    opened,
    sealed_statement,
    state_said,
)
from swiftlet_operator.world import World

TYPE = "FederationReady"


def not_our_turn(world: World) -> str:
    """Return why no pod of this cluster may be taken down because of other members; empty when one may."""
    federation = world.cluster.spec.federation
    if federation is None:
        return ""
    if not federation.leads:
        said = world.federated.said(federation.leader)
        if said is None:
            return f"the leader {federation.leader} of the federation is not heard, so nobody knows whose turn it is"
        if said.turn != federation.member:
            return f"it is the turn of member {said.turn or said.member}"
    elif (turn := _turn(world, federation)) != federation.member:
        return f"it is the turn of member {turn}"
    return others_troubled(world)


def federated_turn(world: World, turn: Turn) -> Turn:
    """Return a turn that a cluster has when it has it among the operator's clusters and among the members."""
    waits = not_our_turn(world)

    def both(wants: bool, in_the_middle: bool, is_stuck: bool) -> str:
        if waits:
            # Other clusters of this operator don't wait for one that waits for another member.
            turn(False, False, False)
            return waits
        return turn(wants, in_the_middle, is_stuck)

    return both


def disrupted(world: World, allowed: Disruptions) -> Disruptions:
    """Return what the budget of pods with data is to say, given whose turn it is among the members."""
    waits = not_our_turn(world)
    if not waits:
        return allowed
    fact = allowed.fact
    if cordoned(world):
        fact = Fact(NODES_CORDONED, "True", "WaitingForTurn", f"no pod may be evicted yet: {waits}")
    return replace(allowed, fact=fact, freed=(), allowed=0, hold=allowed.hold or waits)


def _turn(world: World, federation: FederationSpec) -> str:
    """Return whose turn it is, by the leader's own last statement and what the others say now."""
    before = last_statement(world)
    holder = before.turn if before is not None and before.turn else federation.member
    members = [one.name for one in federation.members]
    if holder in members:
        said = world.federated.said(holder)
        if said is None or said.wants or said.busy:
            return holder
    elif before is not None and (before.wants or before.busy):
        return federation.member
    for name in members:
        said = world.federated.said(name)
        if said is not None and said.wants and set(troubled_members(world, federation)) <= {name}:
            return name
    return federation.member


def last_statement(world: World) -> Statement | None:
    """Return what this cluster told last; None when it has told nothing that it can read."""
    live = world.child(CONFIG_MAP, statement_map(world.cluster.meta.name))
    try:
        data = base64.b64decode(((live or {}).get("binaryData") or {}).get(STATEMENT, ""), validate=True)
        return opened(data, cluster_keys(keys_of(world)))
    except (binascii.Error, ValueError, RefusedStatement):
        return None


def build_statement(
    world: World, site: Site, states: Sequence[RingState], live: Mapping[str, Domain], *, wants: bool
) -> tuple[Manifest, ...]:
    """Return the ConfigMap with what this cluster tells: as it is while nothing is new; nothing without keys."""
    federation, keys = world.cluster.spec.federation, cluster_keys(keys_of(world))
    if federation is None or not keys:
        return ()
    statement, last = _statement(world, federation, states, live, wants), last_statement(world)
    since = {state.task.ring: float(state.published.since_s) for state in states if state.published is not None}
    if (
        last is not None
        and 0 <= world.now_s - last.at_s < RENEWED_S
        and essence(last, since) == essence(statement, since)
    ):
        statement = last
    data = sealed_statement(statement, keys)
    if len(data) > MAX_STATEMENT_BYTES:
        # What is there stays, and counts as silence when it is old: FederationReady tells.
        return ()
    content = {"binaryData": {STATEMENT: base64.b64encode(data).decode()}}
    return (site.object(CONFIG_MAP, statement_map(site.name), "federation", content),)


def _statement(
    world: World,
    federation: FederationSpec,
    states: Sequence[RingState],
    live: Mapping[str, Domain],
    wants: bool,
) -> Statement:
    own, turn = oldest_used(world), ""
    everywhere: dict[str, int] | None = None
    troubled: tuple[str, ...] = ()
    if federation.leads:
        everywhere, turn = used_everywhere(world, own), _turn(world, federation)
        troubled = (*([federation.member] if _is_busy(live) else []), *troubled_members(world, federation))
    return Statement(
        federation=federation.name,
        member=federation.member,
        leader=federation.leader,
        at_s=world.now_s,
        rings=_rings(states),
        devices=_devices(world, states),
        states={
            device: state_said(device_report(world, device), report.devices.get(device) if report else None)
            for device in sorted(_own_devices(states))
            for report in (world.report(pod_of(device), "replicator"),)
        },
        uses=own,
        everywhere=everywhere,
        policies=policies_said(world),
        wants=wants or bool(cordoned(world)) or world.cluster.spec.maintenance is not None,
        busy=_is_busy(live),
        turn=turn,
        troubled=troubled,
    )


def _is_busy(live: Mapping[str, Domain]) -> bool:
    return any(not one.whole or one.behind for one in live.values())


def _rings(states: Sequence[RingState]) -> dict[str, RingSaid]:
    return {
        state.task.ring: RingSaid(
            version=outcome.version,
            digest=digest_of_chunks(outcome.chunks),
            content=outcome.content,
            chunks=len(outcome.chunks),
            since_s=outcome.saved.rebalanced_at_s,
        )
        for state in states
        if (outcome := state.outcome) is not None and outcome.saved is not None
    }


def _own_devices(states: Sequence[RingState]) -> frozenset[str]:
    """Return this cluster's devices in rings, and those that should be in one."""
    members = {name for state in states if state.published is not None for name in state.published.own.zones}
    return frozenset(members | {one.name for state in states for one in state.task.own})


def _devices(world: World, states: Sequence[RingState]) -> tuple[DeviceSaid, ...]:
    wanted = {one.name: one for state in states for one in state.task.own}
    rings: dict[str, list[str]] = {}
    for state in states:
        for one in state.task.own:
            rings.setdefault(one.name, []).append(state.task.ring)
    return tuple(
        DeviceSaid(
            name=name,
            host=one.host,
            port=one.port,
            device=one.device,
            region=one.region,
            weight=one.weight,
            zone=one.zone,
            node=one.node.rpartition("/")[2] if one.node is not None else None,
            full=one.full,
            rings=tuple(sorted(rings[name])),
        )
        for name, one in sorted(wanted.items())
    )


def federation_ready(world: World, states: Sequence[RingState], *, is_too_large: bool = False) -> Fact:
    """Return whether all members are heard, fit together, and use the newest rings.

    `is_too_large`: what this cluster has to tell the others does not fit a ConfigMap.
    """
    federation = world.cluster.spec.federation
    if federation is None:
        return Fact(TYPE, "False", "NotWanted", "spec.federation is not set: the store is in this cluster alone")
    if not cluster_keys(keys_of(world)):
        message = (
            "the Secret with the cluster's keys is not there: copy that of the leader "
            f"(docs/guide/federation.md) to {world.cluster.meta.name}-keys"
        )
        return Fact(TYPE, "False", "KeysMissing", message)
    if is_too_large:
        message = (
            f"what this cluster has to tell the other members is larger than {MAX_STATEMENT_BYTES} bytes, which is all "
            "that a ConfigMap takes: it has too many devices for a member of a federation"
        )
        return Fact(TYPE, "False", "StatementTooLarge", message)
    for member in federation.heard:
        heard = world.federated.heard.get(member.name)
        if heard is None or heard.statement is None:
            reason, message = (heard.reason, heard.message) if heard is not None else ("NotRead", "it was not read yet")
            return Fact(TYPE, "False", reason, f"member {member.name}: {message}")
        if found := _misfit(world, federation, states, heard.statement):
            return Fact(TYPE, "False", found[0], f"member {member.name}: {found[1]}")
    late = late_members(world, {one.published.ring: one.published.version for one in states if one.published})
    if late:
        return Fact(TYPE, "False", "RingsSpreading", f"{', '.join(late)} may still use older rings than this cluster")
    if idle := [one.name for one in federation.heard if _serves_nothing(world, one.name)]:
        message = f"none of the pods of member {', '.join(idle)} is ready, so nobody uses the rings there"
        return Fact(TYPE, "False", "RingsSpreading", message)
    names = ", ".join(one.name for one in federation.heard) or "no other member"
    role = "leads" if federation.leads else f"follows {federation.leader}"
    return Fact(TYPE, "True", "AllHeard", f"{federation.member} {role}; {names} is heard and uses the newest rings")


def _serves_nothing(world: World, member: str) -> bool:
    """Return whether a member has rings, and no service that uses them."""
    said = world.federated.said(member)
    return said is not None and bool(said.rings) and said.uses == {}


def _misfit(
    world: World, federation: FederationSpec, states: Sequence[RingState], said: Statement
) -> tuple[str, str] | None:
    """Return how a member's statement does not fit this cluster: reason and message."""
    if said.leader != federation.leader:
        return "LeaderDisputed", (
            f"its federation.leader is {said.leader}, and here it is {federation.leader}: set the same in all members; "
            "until then no ring changes"
        )
    own = {one.name for state in states for one in state.task.own}
    if twice := collisions(world, own, said):
        return "DeviceNamesCollide", (
            f"it has devices named {', '.join(twice[:3])} as well: make one of the StorageClusters with another name"
        )
    if differing := differences(world, said):
        return "PoliciesDiffer", (
            f"its StoragePolicies are not those of this cluster ({'; '.join(differing[:3])}): apply the same to both"
        )
    for state in states:
        theirs, ours = said.rings.get(state.task.ring), state.outcome
        if theirs is None or ours is None or ours.saved is None:
            continue
        if theirs.version == ours.version and theirs.content != ours.content:
            return "RingsDiffer", (
                f"it has another version {theirs.version} of ring {state.task.ring}, so both have been built by two "
                "leaders: nothing changes any more. Restore the rings of one of them (docs/guide/federation.md)"
            )
        if not federation.leads and theirs.version < ours.version:
            return "LeaderBehind", (
                f"the leader has version {theirs.version} of ring {state.task.ring}, and version {ours.version} is in "
                "use here: it takes the newer one when it reads this cluster"
            )
    return None


def members_told(world: World, federation: FederationSpec) -> list[dict[str, object]]:
    """Return the members for the cluster's status, with the versions of rings that each uses."""
    found: list[dict[str, object]] = []
    for member in federation.heard:
        said = world.federated.said(member.name)
        told: dict[str, object] = {"name": member.name, "heard": said is not None}
        if said is not None:
            uses = said.uses or {}
            told |= {
                "leader": said.leader,
                "whole": not said.busy,
                "rings": {name: one.version for name, one in sorted(said.rings.items())},
                "used": {name: version for name, version in sorted(uses.items()) if name in said.rings},
            }
        found.append(told)
    return found
