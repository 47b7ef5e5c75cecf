"""Who asks: ways to log in, as values that can be pickled, and where they are found.

`find_credentials` looks where python-swiftclient does, in the environment, and at the Secret that the operator makes
for a StorageUser and that a pod has mounted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from swiftlet.client.errors import ConfigurationError

DIRECTORY_VARIABLE = "SWIFTLET_CREDENTIALS"
MOUNTED_AT = "/var/run/secrets/swiftlet"
"""Where a Secret is looked for that no variable names."""
_HOW = (
    "set ST_AUTH, ST_USER and ST_KEY; or OS_AUTH_URL, OS_USERNAME, OS_PASSWORD and OS_PROJECT_NAME; or OS_STORAGE_URL "
    f"and OS_AUTH_TOKEN; or {DIRECTORY_VARIABLE} to the folder where the Secret of a StorageUser is mounted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class V1:
    """A user and a key, for `/auth/v1.0`."""

    auth_url: str
    user: str
    key: str = field(repr=False)
    storage_url: str | None = None
    """Overrides the storage URL that logging in gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token that somebody else has got, and its storage URL. It is not renewed."""

    storage_url: str
    token: str = field(default="", repr=False)
    """Empty: requests are made without a token, as anybody may make them in public containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Which of the storage URLs in Keystone's catalog is used."""

    storage_url: str | None = None
    """The URL to use in place of the catalog's."""
    service_type: str = "object-store"
    interface: str = "public"
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeystoneName:
    """A user or a project of Keystone, by id or by name and domain."""

    id: str | None = None
    name: str | None = None
    domain_id: str | None = None
    domain_name: str | None = None

    def document(self) -> dict[str, object]:
        """Return it as requests to Keystone have it."""
        if self.id is not None:
            return {"id": self.id}
        if self.domain_id is None and self.domain_name is not None:
            return {"name": self.name, "domain": {"name": self.domain_name}}
        return {"name": self.name, "domain": {"id": self.domain_id or "default"}}

    def __bool__(self) -> bool:
        """Whether anything is named."""
        return bool(self.id or self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeystonePassword:
    """A user and a password, for Keystone's version 3."""

    auth_url: str
    user: KeystoneName
    password: str = field(repr=False)
    project: KeystoneName = KeystoneName()
    catalog: Catalog = Catalog()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeystoneToken:
    """A token of Keystone's version 3, which is exchanged for one of the project."""

    auth_url: str
    token: str = field(repr=False)
    project: KeystoneName = KeystoneName()
    catalog: Catalog = Catalog()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationCredential:
    """An application credential of Keystone's version 3, by id, or by name and user."""

    auth_url: str
    secret: str = field(repr=False)
    id: str | None = None
    name: str | None = None
    user: KeystoneName = KeystoneName()
    catalog: Catalog = Catalog()


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedSecret:
    """The Secret of a StorageUser in a folder: files `key`, `user` and `authUrl`, read anew for each login."""

    directory: str
    auth_url: str | None = None
    """Instead of the file `authUrl`, which Secrets that users make themselves don't have."""
    user: str | None = None
    """Instead of the file `user`."""

    def read(self) -> V1:
        """Return what the files say; ConfigurationError names the one that is missing."""
        return V1(
            auth_url=self.auth_url or self._entry("authUrl", "ST_AUTH"),
            user=self.user or self._entry("user", "ST_USER"),
            key=self._entry("key", "ST_KEY"),
        )

    def _entry(self, name: str, variable: str) -> str:
        path = Path(self.directory) / name
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            reason = f"{path}: {error.strerror or error}"
            raise ConfigurationError(f"{reason}; mount the Secret of a StorageUser there, or set {variable}") from error


Credentials: TypeAlias = V1 | Token | KeystonePassword | KeystoneToken | ApplicationCredential | MountedSecret


def find_credentials(environment: Mapping[str, str] | None = None, mounted_at: str = MOUNTED_AT) -> Credentials:
    """Return the credentials of the environment, or of a mounted Secret; ConfigurationError when there are none.

    Of several, the first counts: a token with its storage URL, SWIFTLET_CREDENTIALS, ST_*, OS_*, the usual folder.
    """
    given = {name: value for name, value in (os.environ if environment is None else environment).items() if value}
    if "OS_STORAGE_URL" in given and "OS_AUTH_TOKEN" in given:
        return Token(storage_url=given["OS_STORAGE_URL"], token=given["OS_AUTH_TOKEN"])
    directory = given.get(DIRECTORY_VARIABLE)
    if directory is None and "ST_AUTH" in given:
        return _v1(given)
    if directory is None and "OS_AUTH_URL" in given:
        return _keystone(given)
    if directory is not None or Path(mounted_at, "key").is_file():
        return MountedSecret(
            directory=directory or mounted_at, auth_url=given.get("ST_AUTH"), user=given.get("ST_USER")
        )
    raise ConfigurationError(f"there are no credentials: {_HOW}")


def _v1(given: Mapping[str, str]) -> Credentials:
    version = given.get("ST_AUTH_VERSION", "1")
    if not version.startswith("1"):
        return _keystone({"OS_AUTH_URL": given["ST_AUTH"], **_as_keystone(given), **given})
    if missing := [name for name in ("ST_USER", "ST_KEY") if name not in given]:
        raise ConfigurationError(f"ST_AUTH is set, but not {' and '.join(missing)}")
    return V1(
        auth_url=given["ST_AUTH"],
        user=given["ST_USER"],
        key=given["ST_KEY"],
        storage_url=given.get("OS_STORAGE_URL"),
    )


def _as_keystone(given: Mapping[str, str]) -> dict[str, str]:
    """Return ST_USER and ST_KEY as the variables of Keystone; a user is `PROJECT:NAME` there, as for swiftclient."""
    project, colon, user = given.get("ST_USER", "").partition(":")
    made = {"OS_USERNAME": user if colon else project, "OS_PASSWORD": given.get("ST_KEY", "")}
    if colon:
        made["OS_PROJECT_NAME"] = project
    return {name: value for name, value in made.items() if value}


def _keystone(given: Mapping[str, str]) -> Credentials:
    url = given["OS_AUTH_URL"]
    catalog = Catalog(
        storage_url=given.get("OS_STORAGE_URL"),
        service_type=given.get("OS_SERVICE_TYPE", "object-store"),
        interface=given.get("OS_ENDPOINT_TYPE", given.get("OS_INTERFACE", "public")).removesuffix("URL"),
        region=given.get("OS_REGION_NAME"),
    )
    user = _name(given, "USER", given.get("OS_USERNAME"))
    project = _name(given, "PROJECT", given.get("OS_PROJECT_NAME", given.get("OS_TENANT_NAME")))
    if secret := given.get("OS_APPLICATION_CREDENTIAL_SECRET"):
        identity, name = given.get("OS_APPLICATION_CREDENTIAL_ID"), given.get("OS_APPLICATION_CREDENTIAL_NAME")
        if identity is None and (name is None or not user):
            raise ConfigurationError("OS_APPLICATION_CREDENTIAL_SECRET is set, but not OS_APPLICATION_CREDENTIAL_ID")
        return ApplicationCredential(auth_url=url, secret=secret, id=identity, name=name, user=user, catalog=catalog)
    if user and "OS_PASSWORD" in given:
        return KeystonePassword(
            auth_url=url, user=user, password=given["OS_PASSWORD"], project=project, catalog=catalog
        )
    if token := given.get("OS_AUTH_TOKEN", given.get("OS_TOKEN")):
        return KeystoneToken(auth_url=url, token=token, project=project, catalog=catalog)
    raise ConfigurationError("OS_AUTH_URL is set, but neither OS_USERNAME with OS_PASSWORD nor OS_AUTH_TOKEN")


def _name(given: Mapping[str, str], kind: str, name: str | None) -> KeystoneName:
    identity = given.get(f"OS_{kind}_ID")
    if identity is None and kind == "PROJECT":
        identity = given.get("OS_TENANT_ID")
    return KeystoneName(
        id=identity,
        name=name,
        domain_id=given.get(f"OS_{kind}_DOMAIN_ID", given.get("OS_DEFAULT_DOMAIN")),
        domain_name=given.get(f"OS_{kind}_DOMAIN_NAME"),
    )
