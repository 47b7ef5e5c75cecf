"""How a running cluster turns encryption between its services on and off so that no request is refused meanwhile.

1. none: no service encrypts; servers accept encrypted connections as well.
2. accepted: all services encrypt their requests; servers accept both.
3. required: servers refuse peers that don't encrypt.

The mode is in the ConfigMap with the settings. The next one is written when every running service has said at
`/statusz` that it has the one before, and, before any service encrypts, that all its ports accept it. The pods are then
restarted as for any other change of their settings, one failure domain at a time.

Fault model: a service that is too old, uses RDMA, or does not answer stops the change where it is; the condition
`TransportEncrypted` names it. A ConfigMap that is lost or damaged is made again from what the services say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import yaml

from swiftlet.crd import Fact
from swiftlet.documents import read_document
from swiftlet_operator.build.settings import FILE
from swiftlet_operator.build.site import EncryptionMode
from swiftlet_operator.manifests import CONFIG_MAP, name_of
from swiftlet_operator.reports import SERVICES, EncryptionReport
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TYPE = "TransportEncrypted"
EXPECTED = frozenset({"Off", "TurningOn", "TurningOff"})
"""Reasons of status False that are no trouble."""
_DONE: dict[EncryptionMode, frozenset[str]] = {
    "accepted": frozenset({"accepted", "required"}),
    "none": frozenset({"none", "accepted"}),
}


class _Service(NamedTuple):
    """A service of a pod that may be running, and what it says."""

    pod: str
    says: EncryptionReport | None


def encryption_mode(world: World) -> EncryptionMode:
    """Return the mode that the settings should have now."""
    services = _services(world)
    wanted = world.cluster.spec.encryption == "transport"
    if not services:
        return "required" if wanted else "none"
    now = _written(world) or _said(services)
    if wanted:
        return _towards(now, services)
    if now == "required":
        # Servers that refuse plain peers accept encrypted ones, so all encrypt until no server refuses plain peers.
        return "accepted"
    return "none" if now == "none" or not _lacking(services, _DONE["none"]) else "accepted"


def _towards(now: EncryptionMode, services: Sequence[_Service]) -> EncryptionMode:
    if now == "none":
        return "accepted" if not _unable(services) else "none"
    return "required" if now == "required" or not _lacking(services, _DONE["accepted"]) else "accepted"


def transport_encrypted(world: World, mode: EncryptionMode) -> Fact:
    """Return whether the services refuse plain peers with `mode` in their settings, and which do not yet."""
    services = _services(world)
    if not services:
        return Fact(TYPE, "Unknown", "NotReported", "no service runs yet")
    if world.cluster.spec.encryption != "transport":
        left = _lacking(services, frozenset({"none"})) if mode != "none" or _any_encrypts(services) else []
        if not left:
            message = "services speak to each other in plain text; set spec.encryption to transport to change that"
            return Fact(TYPE, "False", "Off", message)
        return Fact(TYPE, "False", "TurningOff", f"spec.encryption is none; waiting for {named(left)}")
    if mode == "none":
        message = (
            f"{named(_unable(services))} can't take encrypted connections yet, or does not say so: each pod has to run "
            "this version, without RDMA, and to answer at /statusz. Until then nothing is encrypted"
        )
        return Fact(TYPE, "False", "NotReady", message)
    if left := _lacking(services, frozenset({"required"})):
        meaning = "all encrypt, and plain peers are still answered" if mode == "accepted" else "plain peers are refused"
        return Fact(TYPE, "False", "TurningOn", f"{mode} ({meaning}) is being rolled out; waiting for {named(left)}")
    return Fact(TYPE, "True", "Required", f"all {len(services)} services encrypt, and refuse peers that don't")


def _services(world: World) -> list[_Service]:
    """Return the services of all pods that have a node and have not ended."""
    found = []
    for pod in world.pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or not pod["spec"].get("nodeName"):
            continue
        for service in sorted({one["name"] for one in pod["spec"].get("containers") or []} & SERVICES):
            report = world.report(name_of(pod), service)
            found.append(_Service(name_of(pod), report.encryption if report is not None else None))
    return found


def _unable(services: Sequence[_Service]) -> list[str]:
    """Return pods with a service that is not known to accept encrypted connections."""
    return sorted({one.pod for one in services if one.says is None or not one.says.ready})


def _lacking(services: Sequence[_Service], modes: frozenset[str]) -> list[str]:
    """Return pods with a service that is in none of these modes, as far as is known."""
    return sorted({one.pod for one in services if one.says is None or one.says.mode not in modes})


def _any_encrypts(services: Sequence[_Service]) -> bool:
    return any(one.says is not None and one.says.mode != "none" for one in services)


def _written(world: World) -> EncryptionMode | None:
    """Return the mode in the live settings; None when they are missing or damaged."""
    live = world.child(CONFIG_MAP, f"{world.cluster.meta.name}-settings")
    try:
        cluster = read_document((live or {})["data"][FILE])["cluster"]
        found = cluster.get("encryption", "none")
    except (AttributeError, KeyError, TypeError, yaml.YAMLError):
        return None
    return next((mode for mode in get_args(EncryptionMode) if mode == found), None)


def _said(services: Sequence[_Service]) -> EncryptionMode:
    """Return a mode that no running service contradicts: the common one, else one that works with all of theirs."""
    said = {one.says.mode for one in services if one.says is not None}
    for mode in get_args(EncryptionMode):
        if said == {mode} and not _lacking(services, frozenset({mode})):
            return mode  # type: ignore[no-any-return]
    return "none" if _unable(services) else "accepted"
