"""Whether the proxies can be reached from outside of Kubernetes: the condition `APIExposed`."""

from __future__ import annotations

from typing import Any

from swiftlet.crd import Fact, RouteSpec
from swiftlet_operator.manifests import HTTP_ROUTE, INGRESS, Manifest
from swiftlet_operator.plan.passed_on import condition_of, words
from swiftlet_operator.world import World

TYPE = "APIExposed"


def api_exposed(world: World) -> Fact:
    """Return what became of the Ingress and the route. Nobody reports whether a controller serves an Ingress."""
    proxy, name = world.cluster.spec.proxy, world.cluster.meta.name
    if proxy.ingress is None and proxy.route is None:
        return Fact(TYPE, "False", "NotWanted", "neither spec.proxy.ingress nor spec.proxy.route is set")
    if proxy.route is not None and not world.has_gateway_api:
        message = (
            "this Kubernetes knows no kind HTTPRoute of gateway.networking.k8s.io/v1: install the Gateway API and a "
            "controller for it, or remove spec.proxy.route and set spec.proxy.ingress"
        )
        return Fact(TYPE, "False", "GatewayAPIMissing", message)
    if proxy.ingress is not None and world.child(INGRESS, name) is None:
        return Fact(TYPE, "False", "NotMade", f"Ingress {name} has not been created yet")
    if proxy.route is not None:
        live = world.child(HTTP_ROUTE, name)
        if live is None:
            return Fact(TYPE, "False", "NotMade", f"HTTPRoute {name} has not been created yet")
        if (refused := _refused(name, proxy.route, live)) is not None:
            return refused
    where = world.cluster.spec.external_url or "all names of the Gateway"
    return Fact(TYPE, "True", "Exposed", f"clients outside of Kubernetes reach the API at {where}")


def _refused(name: str, asked: RouteSpec, live: Manifest) -> Fact | None:
    """Return why a Gateway refuses the route; None when all that have answered accept it."""
    status: dict[str, Any] = live.get("status") or {}
    parents = [one for one in status.get("parents") or [] if isinstance(one, dict)]
    if not parents:
        gateways = ", ".join(sorted({one.name for one in asked.parent_refs}))
        message = (
            f"no controller has taken up HTTPRoute {name} yet: see whether {gateways} of proxy.route.parentRefs is "
            "there and lets routes of this namespace in (allowedRoutes)"
        )
        return Fact(TYPE, "False", "NotAttached", message)
    for parent in parents:
        for type_ in ("Accepted", "ResolvedRefs"):
            theirs = condition_of(parent.get("conditions"), type_)
            if theirs is not None and theirs.get("status") == "False":
                gateway = (parent.get("parentRef") or {}).get("name")
                return words(TYPE, theirs, "NotAccepted", f"Gateway {gateway}", "see proxy.route in the spec")
    return None
