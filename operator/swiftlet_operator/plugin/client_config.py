"""What a client needs to use a store as a StorageUser: a part of a pod's spec, variables of a shell, or a Secret.

Only those that are meant for a shell or for another namespace contain the user's key, and for these the Secret is read
with the rights of whoever runs the command.
"""

from __future__ import annotations

import base64
import binascii
import json
import shlex
from dataclasses import dataclass
from typing import Literal

from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import Object, name_of

USERS = "storageusers.swiftlet.io"
CLUSTERS = "storageclusters.swiftlet.io"
MOUNTED_AT = "/var/run/secrets/swiftlet"
"""The folder in which clients look for credentials by themselves."""
METADATA_PORT = 8090
"""The port of metadata servers."""

Form = Literal["pod", "env", "secret"]


@dataclass(frozen=True, slots=True)
class Access:
    """Where a store is, and who uses it; `secret` is the name of the Secret and `entry` the entry that has the key.

    `metadata_url` is where grants for direct access are given, None when the store has none.
    """

    namespace: str
    cluster: str
    login: str
    auth_url: str
    metadata_url: str | None
    secret: str
    entry: str

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the environment that are not secret."""
        found = {"ST_AUTH": self.auth_url, "ST_USER": self.login}
        if self.metadata_url is not None:
            found["SWIFTLET_METADATA_URL"] = self.metadata_url
        return found


def find(kubectl: Kubectl, namespace: str, name: str) -> Access:
    """Return how the StorageUser called `name` uses its store. Raises KubectlError, also while the store is not there
    yet.
    """
    user = kubectl.get(USERS, namespace, name)
    spec = user["spec"]
    cluster = kubectl.get(CLUSTERS, namespace, spec["clusterRef"]["name"])
    endpoint = (cluster.get("status") or {}).get("endpoint")
    if not endpoint:
        raise KubectlError(
            f"StorageCluster {name_of(cluster)} has no status.endpoint yet; see kubectl swiftlet status "
            f"{name_of(cluster)} -n {namespace}"
        )
    reference = spec.get("secretRef") or {}
    return Access(
        namespace,
        name_of(cluster),
        f"{spec['account']}:{spec['user']}",
        f"{endpoint}/auth/v1.0",
        _metadata_url(cluster, namespace),
        reference.get("name") or f"{name}-credentials",
        reference.get("key") or "key",
    )


def render(kubectl: Kubectl, access: Access, form: Form, target: str | None) -> str:
    """Return the text to print; `target` is the namespace that a Secret is for, None: the store's own."""
    if form == "pod":
        return _pod(access)
    key = _key(kubectl, access)
    if form == "env":
        pairs = {**access.variables, "ST_KEY": key}
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in pairs.items())
    return _secret(access, key, target or access.namespace)


def _metadata_url(cluster: Object, namespace: str) -> str | None:
    if not (cluster["spec"].get("directAccess") or {}).get("enabled"):
        return None
    return f"http://{name_of(cluster)}-metadata.{namespace}.svc:{METADATA_PORT}"


def _pod(access: Access) -> str:
    # Which user and where is said here, because a Secret that a user has made has the key alone.
    variables = {"SWIFTLET_CREDENTIALS": MOUNTED_AT, **access.variables}
    # A JSON string is a YAML string, too.
    return "\n".join(
        [
            f"# For a pod in namespace {access.namespace}: {access.login} of StorageCluster {access.cluster}.",
            "# The swiftlet command and swiftlet.client find what they need there.",
            "spec:",
            "  containers:",
            "    - name: main",
            "      env:",
            *(f"        - {{name: {name}, value: {json.dumps(value)}}}" for name, value in variables.items()),
            "      volumeMounts:",
            f"        - {{name: store, mountPath: {MOUNTED_AT}, readOnly: true}}",
            "  volumes:",
            "    - name: store",
            "      secret:",
            f"        secretName: {access.secret}",
            f"        items: [{{key: {json.dumps(access.entry)}, path: key}}]",
        ]
    )


def _secret(access: Access, key: str, namespace: str) -> str:
    data = {"key": key, "user": access.login, "authUrl": access.auth_url}
    if access.metadata_url is not None:
        data["metadataUrl"] = access.metadata_url
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": access.secret, "namespace": namespace},
        "type": "Opaque",
        "stringData": data,
    }
    return json.dumps(manifest, indent=2)


def _key(kubectl: Kubectl, access: Access) -> str:
    data = kubectl.get("secrets", access.namespace, access.secret).get("data") or {}
    try:
        key = base64.b64decode(data[access.entry], validate=True).decode().rstrip("\r\n")
    except (KeyError, binascii.Error, UnicodeDecodeError) as error:
        raise KubectlError(f"Secret {access.namespace}/{access.secret} has no text in {access.entry}") from error
    if not key:
        raise KubectlError(f"{access.entry} of Secret {access.namespace}/{access.secret} is empty")
    return key
