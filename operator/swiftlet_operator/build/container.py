"""StatefulSets of the container servers: account and container databases, and their replicator."""

from __future__ import annotations

from swiftlet_operator.build.pods import service_container, template, volumes
from swiftlet_operator.build.redis import redis_volumes
from swiftlet_operator.build.settings import restart_digest
from swiftlet_operator.build.site import (
    CONTAINER,
    CONTAINER_NATIVE_PORT,
    CONTAINER_PORT,
    DATABASE_DEVICE,
    Group,
    Site,
    container_groups,
)
from swiftlet_operator.build.storage import DEVICES_DIRECTORY, RING_CACHE, claim, replicator, stateful_set
from swiftlet_operator.manifests import Manifest


def build_container(site: Site) -> list[Manifest]:
    """Build the StatefulSets of container servers, one for each zone."""
    return [_stateful_set(site, group) for group in container_groups(site.name, site.spec)]


def _stateful_set(site: Site, group: Group) -> Manifest:
    spec = site.spec.container
    host = site.host_of("$(POD_NAME)", CONTAINER)
    server = service_container(
        site,
        "container",
        "container",
        CONTAINER_PORT,
        spec.resources,
        env=[{"name": "SWIFTLET_CONTAINER__RING_HOST", "value": host}],
        more_ports={"updates": CONTAINER_NATIVE_PORT},
        ring_cache=f"{DEVICES_DIRECTORY}/{DATABASE_DEVICE}/{RING_CACHE}",
        mounts=[{"name": DATABASE_DEVICE, "mountPath": f"{DEVICES_DIRECTORY}/{DATABASE_DEVICE}"}],
    )
    pod = template(
        site,
        group.labels,
        restart_digest(site, "container", "replicator"),
        spec,
        [server, replicator(site, "DATABASES", [f"{host}:{CONTAINER_PORT}/{DATABASE_DEVICE}"])],
        [*volumes(site), *redis_volumes(site)],
        zone=group.zone,
        has_data=True,
    )
    databases = claim(site, group, DATABASE_DEVICE, spec.storage.size, spec.storage.class_name)
    return stateful_set(site, group, pod, [databases])
