"""Sealed copies of the keys: when they are made, what is told about them, and which of them gives lost keys back.

The keys are sealed to the operator's recovery key and to `spec.keys.recoveryRecipients`, anew whenever keys or
recipients change. Pods with data write the copy onto their volumes and report its generation, so it is called kept only
when that is proved.

Fault model: both Secrets with the keys are lost, with the namespace or one by one; pods run, or only volumes are left
and pods wait for keys. Copies on volumes may be old, damaged, of another cluster or made by somebody else. Between
copies with different hash suffixes the operator never chooses: a person has to say which one the cluster was made with.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence

from swiftlet.crd import Fact
from swiftlet.settings.secret import suffix_id
from swiftlet_operator.build.sealed import SEALED_OF, build_sealed, sealed_name
from swiftlet_operator.build.secrets import keys_name
from swiftlet_operator.build.settings import HASH_SUFFIX
from swiftlet_operator.build.site import Site
from swiftlet_operator.keys import data_of, keys_of, lacking, suffixes_differ
from swiftlet_operator.manifests import COMPONENT_LABEL, CONFIG_MAP, Manifest, annotations_of, labels_of, name_of
from swiftlet_operator.problems import SealError
from swiftlet_operator.rings import named
from swiftlet_operator.sealing import (
    GENERATION,
    MAX_SEALED_BYTES,
    RecoveryKeys,
    copy_name,
    open_secret,
    parse_copy_name,
    seal_secret,
    wrong_recipients,
)
from swiftlet_operator.world import Unsealed, World

SERVERS = {"storage": "object", "container": "container"}
"""The services that keep copies, by the component of their pods."""


def sealed(world: World, site: Site) -> list[Manifest]:
    """Return the ConfigMap as it should be: the live one while it holds what there is to seal; none without a recovery
    key.
    """
    secret, keys = _to_seal(world), world.recovery
    if secret is None or keys is None:
        return []
    recipients = _good_recipients(world)
    live = world.child(CONFIG_MAP, sealed_name(site.name))
    held = _held(live)
    if live is not None and held is not None:
        code = _code(keys, secret, recipients, *held)
        if annotations_of(live).get(SEALED_OF) == code:
            return [build_sealed(site, *held, code)]
    generation = max(world.now_s, 1 + (_generation(held[0]) if held is not None else 0))
    content = seal_secret(_numbered(secret, generation), keys, recipients)
    if len(content) > MAX_SEALED_BYTES:
        return []
    name = copy_name(_suffix_id(secret), generation)
    return [build_sealed(site, name, content, _code(keys, secret, recipients, name, content))]


def keys_sealed(world: World) -> Fact:
    """Return whether every pod with data has reported that its volumes have the newest sealed copy."""
    if world.recovery is None:
        message = (
            f"the operator has no recovery key: {world.recovery_problem or 'it was started without one'}. "
            "Keep a backup (kubectl swiftlet backup)"
        )
        return Fact("KeysSealed", "False", "NoRecoveryKey", message)
    if wrong := wrong_recipients(world.cluster.spec.keys.recovery_recipients):
        message = f"spec.keys.recoveryRecipients has what is no recipient of age: {', '.join(wrong)}; correct it"
        return Fact("KeysSealed", "False", "RecipientInvalid", message)
    held = _held(world.child(CONFIG_MAP, sealed_name(world.cluster.meta.name)))
    if held is None and _to_seal(world) is None:
        return Fact("KeysSealed", "False", "KeysUnusable", "the keys are lost or incomplete; see SpecValid")
    if held is None:
        return Fact("KeysSealed", "False", "Pending", "no sealed copy has been made yet")
    generation = _generation(held[0])
    if late := _without(world, generation):
        message = f"copy {held[0]} is not on all volumes of {named(late)} yet"
        return Fact("KeysSealed", "False", "Pending", message)
    return Fact("KeysSealed", "True", "Kept", f"all volumes have the sealed copy {held[0]}")


def unsealed(world: World, copies: Iterable[bytes]) -> Unsealed:
    """Return the keys in the newest of the copies that pods handed out, or why there are none."""
    if world.recovery is None:
        return Unsealed(None, f"the operator has no recovery key: {world.recovery_problem}")
    opened: dict[str, tuple[int, Manifest]] = {}
    problems: list[str] = []
    for content in copies:
        try:
            suffix, generation, secret = _opened(world, content, world.recovery)
        except SealError as error:
            problems.append(f"a sealed copy: {error}")
            continue
        if suffix not in opened or opened[suffix][0] < generation:
            opened[suffix] = generation, secret
    if len(opened) > 1:
        found = ", ".join(sorted(opened))
        return Unsealed(None, f"sealed copies on the volumes have different hash suffixes (fingerprints {found})")
    for _, secret in opened.values():
        return Unsealed(secret)
    return Unsealed(None, problems[0] if problems else "no pod that runs has handed out a sealed copy yet")


def _opened(world: World, content: bytes, keys: RecoveryKeys) -> tuple[str, int, Manifest]:
    """Return fingerprint of the suffix, generation and Secret of a copy. Raises SealError when it can't be used."""
    secret = open_secret(content, keys)
    meta, metadata = world.cluster.meta, secret["metadata"]
    if (metadata["namespace"], metadata["name"]) != (meta.namespace, keys_name(meta.name)):
        raise SealError(f"it is of another cluster: Secret {metadata['namespace']}/{metadata['name']}")
    if missing := lacking(secret):
        raise SealError(f"it lacks {', '.join(missing)}")
    # What this operator has sealed has a number.
    return _suffix_id(secret), int(annotations_of(secret)[GENERATION]), secret


def _to_seal(world: World) -> Manifest | None:
    """Return the Secret with the keys as it is sealed; None while they are incomplete or may be the wrong ones."""
    live = keys_of(world)
    if live is None or lacking(live) or suffixes_differ(world):
        return None
    notes = {key: value for key, value in annotations_of(live).items() if "/key-" in key}
    metadata = {"name": name_of(live), "namespace": world.cluster.meta.namespace, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": dict(data_of(live))}


def _code(keys: RecoveryKeys, secret: Manifest, recipients: Sequence[str], name: str, content: bytes) -> str:
    """Return a code that differs when keys or recipients change, or somebody has put something else in the copy's
    place.
    """
    known = [secret, keys.recipient, recipients, name, hashlib.sha256(content).hexdigest()]
    return keys.mac(json.dumps(known, sort_keys=True).encode())


def _numbered(secret: Manifest, generation: int) -> Manifest:
    notes = {**annotations_of(secret), GENERATION: str(generation)}
    return {**secret, "metadata": {**secret["metadata"], "annotations": notes}}


def _good_recipients(world: World) -> list[str]:
    asked = world.cluster.spec.keys.recovery_recipients
    wrong = set(wrong_recipients(asked))
    return sorted(one for one in asked if one not in wrong)


def _suffix_id(secret: Manifest) -> str:
    try:
        return suffix_id(base64.b64decode(data_of(secret)[HASH_SUFFIX], validate=True))
    except ValueError as error:
        raise SealError(f"{HASH_SUFFIX} is not base64") from error


def _held(live: Manifest | None) -> tuple[str, bytes] | None:
    """Return name and content of the newest copy in the ConfigMap, ignoring other entries; None without one."""
    entries = (live or {}).get("binaryData") or {}
    name = max((one for one in entries if parse_copy_name(one) is not None), key=_generation, default=None)
    try:
        return (name, base64.b64decode(entries[name], validate=True)) if name is not None else None
    except ValueError:
        return None


def _generation(name: str) -> int:
    parsed = parse_copy_name(name)
    return parsed[1] if parsed is not None else 0


def _without(world: World, generation: int) -> list[str]:
    """Return pods with data that have not reported this generation or a later one on all their devices."""
    late = []
    for pod in world.pods:
        service = SERVERS.get(labels_of(pod).get(COMPONENT_LABEL, ""))
        if service is None:
            continue
        report = world.report(name_of(pod), service)
        kept = report.sealed_keys if report is not None else {}
        if not kept or min(kept.values()) < generation:
            late.append(name_of(pod))
    return sorted(late)
