"""All children that follow from the spec alone, in the order in which they are created."""

from __future__ import annotations

from swiftlet_operator.build.budgets import build_budgets
from swiftlet_operator.build.container import build_container
from swiftlet_operator.build.deployments import build_deployments
from swiftlet_operator.build.exposure import build_exposure
from swiftlet_operator.build.monitoring import build_monitoring
from swiftlet_operator.build.network import build_network
from swiftlet_operator.build.redis import build_redis
from swiftlet_operator.build.services import build_services
from swiftlet_operator.build.settings import build_settings
from swiftlet_operator.build.shape import account_name
from swiftlet_operator.build.site import Site
from swiftlet_operator.build.storage import build_storage
from swiftlet_operator.manifests import SERVICE_ACCOUNT, Manifest


def build(site: Site) -> list[Manifest]:
    """Return all of them; what pods need comes before the pods. Secrets and rings have modules of their own.

    They are `secrets` and `ring_maps`.
    """
    return [
        build_settings(site),
        _account(site),
        *build_services(site),
        *build_exposure(site),
        *build_network(site),
        *build_budgets(site),
        *build_redis(site),
        *build_storage(site),
        *build_container(site),
        *build_deployments(site),
        *build_monitoring(site),
    ]


def _account(site: Site) -> Manifest:
    """Return the ServiceAccount of pods for which the spec names none.

    It is one of the cluster's own, so that pods don't have rights that were given to the namespace's default one. It
    has no rights and no token. It exists even if the spec names another one for all pods, as pods that have not been
    restarted since then may still need it.
    """
    return site.object(SERVICE_ACCOUNT, account_name(site), "pods", {"automountServiceAccountToken": False})
