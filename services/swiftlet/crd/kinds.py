"""The five kinds, and the parsing of a manifest from the API server into a view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import Field, ValidationError

from swiftlet.crd.base import View
from swiftlet.crd.cluster import StorageClusterSpec
from swiftlet.crd.conditions import Condition, parse_conditions
from swiftlet.crd.policy import StoragePolicySpec
from swiftlet.crd.quota import StorageQuotaSpec
from swiftlet.crd.ring import RingSpec
from swiftlet.crd.user import StorageUserSpec
from swiftlet.errors import SettingsError

GROUP = "swiftlet.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

Spec = TypeVar("Spec", bound=View)


class Meta(View):
    """The part of a resource's metadata that a view keeps."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)

    @property
    def deleting(self) -> bool:
        """Whether the resource is being deleted."""
        return self.deletion_timestamp is not None


@dataclass(frozen=True, slots=True)
class Kind(Generic[Spec]):
    """One kind: its names in the API, and the view of its spec."""

    name: str
    plural: str
    short: str
    spec: type[Spec]


@dataclass(frozen=True, slots=True)
class Resource(Generic[Spec]):
    """A resource as the operator reads it: metadata, spec, and the conditions it had."""

    kind: Kind[Spec]
    meta: Meta
    spec: Spec
    conditions: tuple[Condition, ...] = ()

    @property
    def key(self) -> str:
        """The key of the resource in queues and caches, `namespace/name`."""
        return f"{self.meta.namespace}/{self.meta.name}"

    @property
    def owner_reference(self) -> dict[str, Any]:
        """Return the owner reference of children, with which they are deleted when this resource is."""
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind.name,
            "name": self.meta.name,
            "uid": self.meta.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


STORAGE_CLUSTER = Kind("StorageCluster", "storageclusters", "swc", StorageClusterSpec)
RING = Kind("Ring", "rings", "swr", RingSpec)
STORAGE_POLICY = Kind("StoragePolicy", "storagepolicies", "swp", StoragePolicySpec)
STORAGE_QUOTA = Kind("StorageQuota", "storagequotas", "swq", StorageQuotaSpec)
STORAGE_USER = Kind("StorageUser", "storageusers", "swu", StorageUserSpec)

KINDS: Mapping[str, Kind[Any]] = {
    kind.name: kind for kind in (STORAGE_CLUSTER, RING, STORAGE_POLICY, STORAGE_QUOTA, STORAGE_USER)
}
"""Every kind by its name."""


def parse_storage_cluster(manifest: Mapping[str, Any]) -> Resource[StorageClusterSpec]:
    """Return the StorageCluster in a manifest. Raises SettingsError, which names the field and the fix."""
    return parse_as(STORAGE_CLUSTER, manifest)


def parse_ring(manifest: Mapping[str, Any]) -> Resource[RingSpec]:
    """Return the Ring in a manifest. Raises SettingsError, which names the field and the fix."""
    return parse_as(RING, manifest)


def parse_storage_policy(manifest: Mapping[str, Any]) -> Resource[StoragePolicySpec]:
    """Return the StoragePolicy in a manifest. Raises SettingsError, which names the field and the fix."""
    return parse_as(STORAGE_POLICY, manifest)


def parse_storage_quota(manifest: Mapping[str, Any]) -> Resource[StorageQuotaSpec]:
    """Return the StorageQuota in a manifest. Raises SettingsError, which names the field and the fix."""
    return parse_as(STORAGE_QUOTA, manifest)


def parse_storage_user(manifest: Mapping[str, Any]) -> Resource[StorageUserSpec]:
    """Return the StorageUser in a manifest. Raises SettingsError, which names the field and the fix."""
    return parse_as(STORAGE_USER, manifest)


def parse_resource(manifest: Mapping[str, Any]) -> Resource[Any]:
    """Return the resource in a manifest of any of the five kinds. Raises SettingsError."""
    name = str(manifest.get("kind", ""))
    if name not in KINDS:
        raise SettingsError(f"kind {name!r} does not belong to Swiftlet; the kinds are: {', '.join(KINDS)}")
    return parse_as(KINDS[name], manifest)


def parse_as(kind: Kind[Spec], manifest: Mapping[str, Any]) -> Resource[Spec]:
    """Return the resource of this kind in a manifest. Raises SettingsError, which lists all mistakes at once."""
    given = (str(manifest.get("apiVersion", API_VERSION)), str(manifest.get("kind", kind.name)))
    if given != (API_VERSION, kind.name):
        raise SettingsError(f"{given[1]} of {given[0]} is not a {kind.name} of {API_VERSION}")
    problems: list[str] = []
    meta = _view(Meta, manifest.get("metadata") or {}, "metadata", problems)
    spec = _view(kind.spec, manifest.get("spec") or {}, "spec", problems)
    if meta is None or spec is None:
        name = (manifest.get("metadata") or {}).get("name", "(no name)")
        raise SettingsError(f"{kind.name} {name}: " + "; ".join(problems))
    return Resource(kind, meta, spec, parse_conditions(manifest))


_V = TypeVar("_V", bound=View)


def _view(model: type[_V], raw: Any, where: str, problems: list[str]) -> _V | None:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problems += [_sentence(where, one) for one in error.errors(include_url=False)]
        return None


def _sentence(where: str, one: Any) -> str:
    field = where + "".join(f"[{piece}]" if isinstance(piece, int) else f".{piece}" for piece in one["loc"])
    if one["type"] == "missing":
        return f"{field}: missing; set it, it has no default"
    reason = str(one["ctx"]["error"]) if one["type"] == "value_error" else one["msg"][:1].lower() + one["msg"][1:]
    given = "" if isinstance(one["input"], (dict, list)) else f" {one['input']!r}:"
    return f"{field}:{given} {reason}"
