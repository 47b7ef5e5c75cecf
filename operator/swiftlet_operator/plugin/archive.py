"""The file that `kubectl swiftlet backup` writes: a tar in one age file, and the checks before its contents are used.

    age --decrypt [-i key.txt] store.age | tar -x

gives the folder `swiftlet-backup` with `backup.json`, which says what the backup is of and has a digest of every other
file, and `objects/NUMBER-KIND-NAME.json`, manifests in the order in which they are to be applied.

Fault model: the file is cut off, damaged, of another program or of a later version, or made by somebody who wants the
one who restores it to write other things. Then nothing of it is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftlet import __version__
from swiftlet.formats import other_version
from swiftlet_operator.plugin.picture import Object

FORMAT = "swiftlet-backup"
VERSION = 1
MAX_FILE_BYTES = 256 << 20
"""The largest size in bytes of a backup, encrypted or not."""
MAX_OBJECT_BYTES = 4 << 20
"""The largest size in bytes of one object; Kubernetes stores none that is larger."""
MAX_OBJECTS = 50_000
KINDS = {
    "Secret": "v1",
    "ConfigMap": "v1",
    "PersistentVolumeClaim": "v1",
    "StorageCluster": "swiftlet.io/v1alpha1",
    "StoragePolicy": "swiftlet.io/v1alpha1",
    "StorageQuota": "swiftlet.io/v1alpha1",
    "StorageUser": "swiftlet.io/v1alpha1",
    "Ring": "swiftlet.io/v1alpha1",
}
"""The kinds that a backup has; nothing else is restored from it."""
_FOLDER = "swiftlet-backup"
_HEAD = f"{_FOLDER}/backup.json"
_OBJECT = re.compile(rf"{_FOLDER}/objects/[0-9]{{5}}-[A-Za-z]+-[-a-z0-9.]+\.json")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class BackupError(Exception):
    """A backup can't be made or used; `str(error)` says why."""


@dataclass(frozen=True, slots=True)
class Saved:
    """An object of a backup; `owners` are its owner references, whose uids are no longer valid."""

    manifest: Object
    owners: tuple[Object, ...] = ()

    @property
    def kind(self) -> str:
        """Return the object's kind."""
        return str(self.manifest["kind"])

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Return the object's namespace."""
        return str(self.manifest["metadata"]["namespace"])


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of one cluster, its objects in the order in which they are restored; `made_at` is in RFC 3339.

    `operator_namespace` is the namespace with the recovery key.
    """

    cluster: str
    namespace: str
    operator_namespace: str
    made_at: str
    objects: tuple[Saved, ...]


def pack(backup: Backup) -> bytes:
    """Return the backup as a tar file."""
    files = {
        f"{_FOLDER}/objects/{number:05}-{one.kind}-{one.name}.json": _json(one.manifest)
        for number, one in enumerate(backup.objects)
    }
    objects = [
        {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "owners": list(one.owners)}
        for (name, content), one in zip(files.items(), backup.objects, strict=True)
    ]
    head = {
        "format": FORMAT,
        "version": VERSION,
        "swiftlet": __version__,
        "cluster": backup.cluster,
        "namespace": backup.namespace,
        "operatorNamespace": backup.operator_namespace,
        "madeAt": backup.made_at,
        "objects": objects,
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in {_HEAD: _json(head), **files}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o600
            tar.addfile(info, io.BytesIO(content))
    if out.tell() > MAX_FILE_BYTES:
        raise BackupError(f"the backup would be larger than {MAX_FILE_BYTES} bytes")
    return out.getvalue()


def unpack(content: bytes) -> Backup:
    """Return the contents of a tar file after checking all of them. Raises BackupError if any check fails."""
    files = _files(content)
    head = _parsed(files.pop(_HEAD, b""), "backup.json")
    if head.get("format") != FORMAT:
        raise BackupError("it is no backup of Swiftlet: its backup.json does not say so")
    if head.get("version") != VERSION:
        fix = f"use the plugin of the release that made it, Swiftlet {str(head.get('swiftlet'))[:40]}"
        raise BackupError(other_version("the backup", head.get("version"), VERSION, fix))
    texts = [head.get(key) for key in ("cluster", "namespace", "operatorNamespace", "madeAt")]
    if not all(isinstance(one, str) for one in texts) or not all(_NAME.fullmatch(str(one)) for one in texts[:3]):
        raise BackupError("its backup.json does not say of which cluster it is")
    cluster, namespace, operator_namespace, made_at = map(str, texts)
    entries = head.get("objects")
    if not isinstance(entries, list) or sorted(map(_file_of, entries)) != sorted(files):
        raise BackupError("its backup.json does not name the files that are in it")
    objects = tuple(_saved(entry, files[entry["file"]]) for entry in entries)
    backup = Backup(cluster, namespace, operator_namespace, made_at, objects)
    for one in objects:
        _check(backup, one)
    return backup


def _files(content: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for info in tar:
                known = info.name == _HEAD or _OBJECT.fullmatch(info.name)
                if not known or not info.isreg() or info.name in found:
                    raise BackupError(f"it has {info.name[:100]!r} in it, which no backup has")
                if len(found) > MAX_OBJECTS or (info.name != _HEAD and info.size > MAX_OBJECT_BYTES):
                    raise BackupError("it is larger than any backup")
                file = tar.extractfile(info)
                assert file is not None
                found[info.name] = file.read()
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BackupError(f"it is no backup of Swiftlet, or damaged: {error}") from error
    return found


def _saved(entry: Mapping[str, Any], content: bytes) -> Saved:
    file, owners = entry["file"], entry.get("owners")
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise BackupError(f"it is damaged: {file} is not what it was when the backup was made")
    if not isinstance(owners, list) or not all(isinstance(one, dict) for one in owners):
        raise BackupError(f"it is damaged: {file} has no list of owners")
    return Saved(_parsed(content, file), tuple(owners))


def _check(backup: Backup, one: Saved) -> None:
    manifest = one.manifest
    metadata = manifest.get("metadata")
    kind = manifest.get("kind")
    if KINDS.get(str(kind)) != manifest.get("apiVersion"):
        raise BackupError(f"it has an object of kind {kind!r} in it, which no backup has")
    if not isinstance(metadata, dict) or not _NAME.fullmatch(str(metadata.get("name"))):
        raise BackupError(f"it has a {kind} without a name in it")
    if metadata.get("namespace") not in (backup.namespace, backup.operator_namespace):
        raise BackupError(f"{kind} {one.name} is of another namespace than the backup")
    if kind == "ConfigMap" and not one.name.startswith((f"{backup.cluster}-builder-", f"{backup.cluster}-ring-")):
        raise BackupError(f"it has the ConfigMap {one.name} in it, which no backup has")


def _file_of(entry: object) -> str:
    return str(entry.get("file")) if isinstance(entry, dict) else ""


def _parsed(content: bytes, name: str) -> Object:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BackupError(f"it is no backup of Swiftlet, or damaged: {name} is no JSON") from error
    if not isinstance(parsed, dict):
        raise BackupError(f"it is no backup of Swiftlet, or damaged: {name} is no object")
    return parsed


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def ordered(groups: Sequence[Sequence[Saved]]) -> tuple[Saved, ...]:
    """Return the objects in the order of their groups, each object once."""
    found: dict[tuple[str, str, str], Saved] = {}
    for one in (one for group in groups for one in group):
        found.setdefault((one.kind, one.namespace, one.name), one)
    return tuple(found.values())
