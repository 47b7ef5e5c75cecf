"""The pods' ServiceAccount: one of the cluster's own, so that rights given to the namespace's default are not theirs.

It has no rights and no token. It is there even where the spec names another one for all pods, as pods that have not
been restarted since then may still need it.
"""

from __future__ import annotations

from swiftlet_operator.build.shape import account_name
from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import SERVICE_ACCOUNT, Manifest


def build_account(site: Site) -> Manifest:
    """Return the ServiceAccount of pods for which the spec names none."""
    return site.object(SERVICE_ACCOUNT, account_name(site), "pods", {"automountServiceAccountToken": False})
