"""The ConfigMap `X-sealed-keys`: the sealed keys, which pods with data store on their volumes.

It is not a Secret because nothing in it is secret, and because all Secrets of a namespace are often lost together.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet_operator.build.site import Site
from swiftlet_operator.manifests import CONFIG_MAP, GROUP, Manifest

SEALED_OF = f"{GROUP}/sealed-of"
"""An annotation: a message authentication code of the sealed content and its recipients, which changes with them."""
DIRECTORY = "/etc/swiftlet/sealed-keys"
_VOLUME = "sealed-keys"


def sealed_name(cluster: str) -> str:
    """Return the name of the ConfigMap with a cluster's sealed keys."""
    return f"{cluster}-sealed-keys"


def build_sealed(site: Site, name: str, sealed: bytes, sealed_of: str) -> Manifest:
    """Return the ConfigMap with one sealed copy, `name`."""
    content = {"binaryData": {name: base64.b64encode(sealed).decode()}}
    return site.object(CONFIG_MAP, sealed_name(site.name), "sealed-keys", content, annotations={SEALED_OF: sealed_of})


def with_sealed_keys(
    site: Site, containers: Sequence[Mapping[str, Any]], volumes: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the containers and volumes of a pod with data, which also starts without keys and then serves its sealed
    copies.
    """
    setting = {"name": "SWIFTLET_CLUSTER__SEALED_KEYS_DIRECTORY", "value": DIRECTORY}
    mount = {"name": _VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    source = {"name": _VOLUME, "configMap": {"name": sealed_name(site.name), "optional": True}}
    return (
        [{**one, "env": [*one["env"], setting], "volumeMounts": [*one["volumeMounts"], mount]} for one in containers],
        [*(_optional(one) if one["name"] == "keys" else one for one in volumes), source],
    )


def _optional(volume: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**volume, "secret": {**volume["secret"], "optional": True}}
