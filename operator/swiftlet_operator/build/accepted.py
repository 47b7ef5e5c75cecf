"""The ConfigMap `X-accepted`: the specs that fitted together last."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import CONFIG_MAP, Manifest

ENTRY = "specs.json"


def accepted_name(cluster: str) -> str:
    """Return the name of the ConfigMap with the accepted specs of a cluster."""
    return f"{cluster}-accepted"


def build_accepted(site: Site, specs: Mapping[str, Any]) -> Manifest:
    """Return the ConfigMap; `specs` is plain data that `swiftlet_operator.plan.accepted` reads back."""
    data = {ENTRY: json.dumps(specs, sort_keys=True, indent=1)}
    return site.object(CONFIG_MAP, accepted_name(site.name), "accepted", {"data": data})
