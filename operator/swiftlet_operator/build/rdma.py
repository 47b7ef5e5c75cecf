"""The parts of a container that RDMA needs: the device plugin's resource, the right to lock memory, and the setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftlet.crd import Pool, ProxySpec
from swiftlet_operator.build.pods import container_security
from swiftlet_operator.build.site import Site

MODE = "SWIFTLET_CLUSTER__RDMA"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""The annotation by which pods get an interface of the RDMA card."""


def with_rdma(site: Site, pods: Pool | ProxySpec, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container with what these pods' RDMA needs, unchanged where RDMA is not wanted.

    Every container that uses the native transport has the resource, because devices are given to containers and not to
    pods.
    """
    mode = site.rdma_mode(pods)
    if mode is None:
        return dict(container)
    found = {**container, "env": [*container["env"], {"name": MODE, "value": mode}]}
    rdma = site.rdma_of(pods)
    if rdma is None or rdma.resource is None:
        return found
    resources = {kind: dict(asked) for kind, asked in container.get("resources", {}).items()}
    for kind in ("requests", "limits"):
        resources.setdefault(kind, {})[rdma.resource] = str(rdma.count)
    return {**found, "resources": resources, "securityContext": container_security(["IPC_LOCK"])}
