"""`kubectl swiftlet backup`: everything except the data that a cluster can't be found again without, in one file."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable, Iterator, Sequence

from swiftlet_operator.plugin.archive import Backup, BackupError, Saved, ordered
from swiftlet_operator.plugin.kubectl import Kubectl
from swiftlet_operator.plugin.picture import INSTANCE_LABEL, RING_LABEL, Object, belongs_to, name_of
from swiftlet_operator.rings import unite

RECOVERY_LABEL = "app.kubernetes.io/component=recovery-key"
RECOVERY = "swiftlet-recovery-key"
DATA_FINALIZER = "swiftlet.io/data"
BUILDER_LABEL = "swiftlet.io/builder"
KEY_ENTRIES = ("cluster-key", "hash-path-suffix")
TRIES = 3
"""How often a ring that changes while it is read is read again."""
_DROPPED = ("status",)
_KEPT_METADATA = ("name", "namespace", "labels")
_FOREIGN = ("kubectl.kubernetes.io/", "pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/")
"""Prefixes of annotations that say where and how an object was stored, not what it is."""


def make(kubectl: Kubectl, cluster: Object, operator_namespace: str | None) -> Backup:
    """Return a backup of a cluster as it is now. Raises BackupError and KubectlError."""
    name, namespace = name_of(cluster), str(cluster["metadata"]["namespace"])

    def mine(resource: str) -> list[Object]:
        return [one for one in kubectl.list(resource, namespace) if belongs_to(one, name)]

    policies, quotas = mine("storagepolicies.swiftlet.io"), mine("storagequotas.swiftlet.io")
    users, rings = mine("storageusers.swiftlet.io"), mine("rings.swiftlet.io")
    secrets = {name_of(one): one for one in kubectl.list("secrets", namespace)}
    recovery = _recovery(kubectl, operator_namespace)
    named = _named_secrets(cluster, users)
    made = [f"{name_of(one)}-credentials" for one in users if not (one.get("spec") or {}).get("secretRef")]
    groups: list[list[Object]] = [
        recovery[:1],
        _keys(name, secrets),
        _ring_parts(kubectl, name, namespace),
        users,
        [secrets[one] for one in (*named, *made) if one in secrets],
        policies,
        quotas,
        rings,
        kubectl.list("persistentvolumeclaims", namespace, f"{INSTANCE_LABEL}={name}"),
        [cluster],
    ]
    missing = [one for one in named if one not in secrets]
    if missing:
        raise BackupError(f"Secret {', '.join(missing)} in {namespace} is named by the cluster or a user but not there")
    home = str(recovery[0]["metadata"]["namespace"]) if recovery else operator_namespace or namespace
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Backup(name, namespace, home, made_at, ordered([[cleaned(one) for one in group] for group in groups]))


def cleaned(live: Object) -> Saved:
    """Return an object in a form in which it can be created in any cluster."""
    metadata = live["metadata"]
    kept: Object = {key: metadata[key] for key in _KEPT_METADATA if key in metadata}
    notes = {key: text for key, text in (metadata.get("annotations") or {}).items() if not key.startswith(_FOREIGN)}
    if notes:
        kept["annotations"] = notes
    if DATA_FINALIZER in (metadata.get("finalizers") or []):
        kept["finalizers"] = [DATA_FINALIZER]
    rest = {key: value for key, value in live.items() if key not in _DROPPED}
    owners = [
        {key: value for key, value in one.items() if key != "uid"} for one in metadata.get("ownerReferences") or []
    ]
    return Saved({**rest, "metadata": kept}, tuple(owners))


def _recovery(kubectl: Kubectl, namespace: str | None) -> list[Object]:
    """Return the Secret with the operator's recovery key; none when no operator has made one."""
    found = [one for one in kubectl.list("secrets", namespace, RECOVERY_LABEL) if name_of(one) == RECOVERY]
    if len(found) > 1:
        names = ", ".join(sorted(one["metadata"]["namespace"] for one in found))
        raise BackupError(f"there are recovery keys in several namespaces: {names}; say which: --operator-namespace")
    return found


def _keys(cluster: str, secrets: dict[str, Object]) -> list[Object]:
    found = [secrets[name] for name in (f"{cluster}-keys", f"{cluster}-keys-copy") if name in secrets]
    if not any(all((one.get("data") or {}).get(key) for key in KEY_ENTRIES) for one in found):
        raise BackupError(f"the Secret {cluster}-keys is not there or not whole: restore it first (see SpecValid)")
    return found


def _ring_parts(kubectl: Kubectl, cluster: str, namespace: str) -> list[Object]:
    """Return builders, their copies, and rings. Raises BackupError when a builder can't be read as a whole."""
    mine = f"{INSTANCE_LABEL}={cluster}"
    for _ in range(TRIES):
        builders = kubectl.list("configmaps", namespace, f"{mine},{BUILDER_LABEL}")
        copies = kubectl.list("secrets", namespace, f"{mine},{BUILDER_LABEL}")
        rings = kubectl.list("configmaps", namespace, f"{mine},{RING_LABEL}")
        torn = [ring for ring, pieces in _pieces(builders) if unite(pieces) is None]
        if not torn:
            return [*builders, *copies, *rings]
    raise BackupError(f"the builder of ring {', '.join(torn)} is damaged, or changes all the time; try again")


def _pieces(builders: Iterable[Object]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield each ring with the pieces of its builder in order."""
    found: dict[str, dict[int, bytes]] = {}
    for one in builders:
        number = name_of(one).rpartition("-")[2]
        try:
            piece = base64.b64decode((one.get("binaryData") or {}).get("piece", ""), validate=True)
        except binascii.Error:
            piece = b""
        found.setdefault(one["metadata"]["labels"][BUILDER_LABEL], {})[int(number)] = piece
    for ring, pieces in sorted(found.items()):
        yield ring, [pieces[number] for number in sorted(pieces)]


def _named_secrets(cluster: Object, users: Sequence[Object]) -> list[str]:
    """Return the Secrets that the cluster and its users name; those with generated credentials are not among them."""
    spec = cluster.get("spec") or {}
    redis = spec.get("redis") or {}
    references = [(spec.get("tls") or {}).get("secretRef"), redis.get("passwordSecretRef"), redis.get("caSecretRef")]
    references.append((spec.get("containerSync") or {}).get("realmsSecretRef"))
    references += [(user.get("spec") or {}).get("secretRef") for user in users]
    names = [str(one["name"]) for one in references if one]
    return list(dict.fromkeys(names))
