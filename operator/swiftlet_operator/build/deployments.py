"""Deployments of stateless components: the proxies and the metadata servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet_operator.build.pods import (
    API_LABEL,
    QUOTAS_MOUNT,
    USERS_MOUNT,
    component_labels,
    proxy_container,
    service_container,
    template,
    volumes,
)
from swiftlet_operator.build.rdma import NETWORKS, with_rdma
from swiftlet_operator.build.settings import restart_digest
from swiftlet_operator.build.site import (
    METADATA,
    METADATA_MANAGEMENT_PORT,
    METADATA_PORT,
    PROXY,
    Proxies,
    Site,
    all_proxies,
)
from swiftlet_operator.manifests import COMPONENT_LABEL, DEPLOYMENT, MANAGEMENT, REGION_LABEL, Manifest


def build_deployments(site: Site) -> list[Manifest]:
    """Build the Deployments that have any replicas."""
    return [*_proxies(site), *_metadata(site)]


def _proxies(site: Site) -> list[Manifest]:
    return [_proxy_deployment(site, one) for one in all_proxies(site.spec)]


def _proxy_deployment(site: Site, proxies: Proxies) -> Manifest:
    spec = site.spec.proxy
    rdma = site.rdma_of(spec)
    place = [{"name": "SWIFTLET_PROXY__REGION", "value": proxies.region}] if proxies.region is not None else []
    chosen = {REGION_LABEL: proxies.label} if proxies.label is not None else {}
    pod = template(
        site,
        {COMPONENT_LABEL: PROXY, API_LABEL: "true", **chosen},
        restart_digest(site, "proxy"),
        spec,
        [with_rdma(site, spec, proxy_container(site, spec.resources, place))],
        volumes(site, proxy=True),
        annotations={NETWORKS: rdma.networks} if rdma and rdma.networks else None,
        node_selector=rdma.node_selector if rdma else None,
        region=proxies.label,
    )
    return _deployment(site, PROXY, proxies.suffix, proxies.replicas, pod, chosen)


def _metadata(site: Site) -> list[Manifest]:
    spec = site.spec.metadata
    if not spec.replicas:
        return []
    more = {MANAGEMENT: METADATA_MANAGEMENT_PORT}
    # Who gives grants has to know which users there still are.
    users = site.spec.direct_access.enabled
    mounts = [QUOTAS_MOUNT, USERS_MOUNT] if users else [QUOTAS_MOUNT]
    server = service_container(
        site, "metadata", "metadata", METADATA_PORT, spec.resources, mounts=mounts, more_ports=more
    )
    labels, digest = {COMPONENT_LABEL: METADATA}, restart_digest(site, "metadata")
    pod = template(site, labels, digest, spec, [server], volumes(site, quotas=True, users=users))
    return [_deployment(site, METADATA, METADATA, spec.replicas, pod)]


def _deployment(
    site: Site,
    component: str,
    suffix: str,
    replicas: int,
    pod: Mapping[str, Any],
    chosen: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a Deployment of a component's pods, of those that have the labels `chosen` besides."""
    spec = {
        "replicas": replicas,
        "revisionHistoryLimit": 3,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": {**component_labels(site, component), **(chosen or {})}},
        "template": pod,
    }
    return site.object(DEPLOYMENT, site.child(suffix), component, {"spec": spec})
