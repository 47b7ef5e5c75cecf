"""Custom resources in a file: a StorageCluster, and the StoragePolicies beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from swiftlet.advice.cluster import ClusterShape, cluster_of
from swiftlet.advice.errors import AdviceError
from swiftlet.crd import parse_storage_cluster, parse_storage_policy

MAX_FILE_BYTES = 16 << 20
"""Bytes of a file with custom resources."""


def read_clusters(path: Path) -> list[ClusterShape]:
    """Return the StorageClusters in a file. AdviceError without any; SettingsError, which names what is wrong."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise AdviceError(f"{path} is too large: it may have {MAX_FILE_BYTES:,} bytes")
        documents = [one for one in yaml.safe_load_all(path.read_text("utf-8")) if isinstance(one, dict)]
    except (OSError, UnicodeError) as error:
        raise AdviceError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise AdviceError(f"{path} is not valid YAML: {error}") from error
    # What `kubectl get -o yaml` prints of several.
    every = [item for one in documents for item in (one.get("items") or [one] if one.get("kind") == "List" else [one])]
    clusters = [parse_storage_cluster(one) for one in every if one.get("kind") == "StorageCluster"]
    policies = [parse_storage_policy(one) for one in every if one.get("kind") == "StoragePolicy"]
    if not clusters:
        raise AdviceError(f"{path}: there is no StorageCluster in it")
    shown: list[dict[str, Any]] = [_manifest(one) for one in policies]
    return [cluster_of(_manifest(one), shown) for one in clusters]


def _manifest(one: Any) -> dict[str, Any]:
    """Return a resource with all defaults."""
    return {"metadata": {"name": one.meta.name}, "spec": one.spec.model_dump(by_alias=True, mode="json")}
