"""Objects by the state of their containers, for services that have both."""

from __future__ import annotations

from swiftlet.api.context.container_cache import ContainerCache
from swiftlet.errors import NotFound
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.routing import RoutedObjects
from swiftlet.policy_moves import PolicyMove
from swiftlet.settings.policies import Policies

REMEMBERED_S = 10.0
"""Seconds for which services without an API remember a container."""


def routed(objects: ClusterObjects, containers: ContainerCache, policies: Policies) -> RoutedObjects:
    """Return the objects of all containers, wherever these keep them by what is known of them."""

    async def move_of(path: Path) -> PolicyMove | None:
        assert path.container is not None
        try:
            return (await containers.get(path.account, path.container)).move
        except NotFound:
            return None

    return RoutedObjects(objects, move_of, policies.move_in_force)


def routed_in_background(objects: ClusterObjects, listings: ClusterListings, policies: Policies) -> RoutedObjects:
    """Return the same for a service that has no other use of containers."""
    return routed(objects, ContainerCache(listings.container_facts, listings.container_info, REMEMBERED_S), policies)
