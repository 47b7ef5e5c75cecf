"""The realms file: which clusters trust each other, and their keys, in OpenStack Swift's format. Pure but for reading.

https://docs.openstack.org/swift/latest/overview_container_sync.html (container-sync-realms.conf). Names of realms and
clusters have no case.

Fault model: the file may be gone, damaged or half-written at any check; the last good realms stay in force then.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from swiftlet.errors import InvalidName, SettingsError
from swiftlet.names import parse_path
from swiftlet.watched_file import WatchedFile

MAX_FILE_BYTES = 1 << 20
_CLUSTER = "cluster_"
_IGNORED = frozenset({"mtime_check_interval"})
"""Options of OpenStack Swift's for which there is a setting here."""


@dataclass(frozen=True, slots=True)
class Realm:
    """Clusters that trust each other, by upper-case name, with the URL below which each has its accounts."""

    key: str = field(repr=False)
    key2: str | None = field(repr=False)
    """A second key whose signatures are accepted, while keys are being changed."""
    clusters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """The container that is the copy: its URL, and the realm by whose key requests are signed."""

    realm: str
    url: str
    key: str = field(repr=False)


class InvalidTarget(SettingsError):
    """A value of X-Container-Sync-To that names no container of a cluster in the realms."""


@dataclass(frozen=True, slots=True)
class Realms:
    """All realms by upper-case name."""

    realms: Mapping[str, Realm] = field(default_factory=dict)

    def named(self, name: str) -> Realm | None:
        """Return the realm of that name, without regard to case."""
        return self.realms.get(name.upper())

    def target(self, text: str) -> Target:
        """Return what `//realm/cluster/account/container` stands for; the last two are percent-encoded. Raises
        InvalidTarget.
        """
        shown = ascii(text[:256])
        if not text.startswith("//"):
            raise InvalidTarget(
                f"X-Container-Sync-To is {shown}, but has to be //realm/cluster/account/container; "
                "full URLs are not allowed"
            )
        pieces = text.rstrip("/")[2:].split("/")
        if len(pieces) != 4 or not all(pieces) or "?" in text or "#" in text:
            raise InvalidTarget(f"X-Container-Sync-To is {shown}, but has to be //realm/cluster/account/container")
        name, cluster, account, container = pieces
        try:
            parse_path(f"/{account}/{container}")
        except InvalidName as error:
            raise InvalidTarget(f"X-Container-Sync-To {shown}: {error}") from error
        if not (account + container).isascii() or any(char.isspace() for char in account + container):
            raise InvalidTarget(f"X-Container-Sync-To is {shown}; percent-encode the account and the container in it")
        realm = self.named(name)
        if realm is None:
            raise InvalidTarget(f"X-Container-Sync-To {shown}: there is no realm {name!a} with a key")
        endpoint = realm.clusters.get(cluster.upper())
        if endpoint is None:
            raise InvalidTarget(f"X-Container-Sync-To {shown}: realm {name} has no cluster {cluster!a}")
        return Target(name.upper(), f"{endpoint}/{account}/{container}", realm.key)


def parse_realms(text: str, what: str) -> Realms:
    """Return the realms in a file; `what` names it in errors. Raises SettingsError."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string(text)
        return Realms({name.upper(): _realm(name, dict(parser.items(name)), what) for name in parser.sections()})
    except configparser.Error as error:
        raise SettingsError(f"{what}: {_without_values(error)}") from None


def _without_values(error: configparser.Error) -> str:
    """Return what is wrong without the text of the file, which has keys."""
    if isinstance(error, configparser.InterpolationError):
        return f"option {error.option!r} of [{error.section}] has a '%'; write '%%' for one"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"[{error.section}] has the option {error.option!r} twice"
    if isinstance(error, configparser.DuplicateSectionError):
        return f"there are two sections [{error.section}]"
    lines = [line for line, _ in getattr(error, "errors", [])] or [getattr(error, "lineno", "?")]
    return f"line {lines[0]} is neither a [section] nor 'option = value'"


def _realm(name: str, options: Mapping[str, str], what: str) -> Realm:
    where = f"{what}, realm [{name}]"
    clusters = {}
    for option, value in options.items():
        if option.startswith(_CLUSTER) and len(option) > len(_CLUSTER):
            clusters[option[len(_CLUSTER) :].upper()] = _endpoint(value, f"{where}, {option}")
        elif option not in {"key", "key2"} | _IGNORED:
            raise SettingsError(f"{where}: unknown option {option!r}; there are key, key2 and cluster_NAME")
    if not options.get("key"):
        raise SettingsError(f"{where} has no key; set 'key' to a secret that all clusters of the realm know")
    return Realm(options["key"], options.get("key2") or None, clusters)


def _endpoint(value: str, what: str) -> str:
    """Return a cluster's URL without a slash at its end."""
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username or not value.isascii():
        raise SettingsError(f"{what}: {value!r} is no URL such as https://swift.example.org/v1/")
    return value.rstrip("/")


class RealmsFile:
    """The realms in force, read again when their file changes."""

    def __init__(self, path: str | os.PathLike[str] | None, current: str | None = None) -> None:
        """Read the file; without one there is no container sync. `current` is this cluster, `//realm/cluster`.

        Raises SettingsError when the file can't be used.
        """
        self._path = path
        self._file = None if path is None else WatchedFile(Path(path), "realms file", MAX_FILE_BYTES)
        self._current = tuple(current.upper().strip("/").split("/")) if current else ()
        self.realms = Realms()
        self.reload()

    @property
    def enabled(self) -> bool:
        """Whether there is a file, and so container sync."""
        return self._file is not None

    def reload(self) -> bool:
        """Read the file if it changed; return whether it had. SettingsError leaves the last good realms in force."""
        return self._file is not None and self._file.reload(self._use)

    def _use(self, _content: bytes, text: str) -> None:
        self.realms = parse_realms(text, f"realms file {self._path}")

    def shown(self) -> dict[str, object]:
        """Return what `/info` tells: realms and their clusters, and which of them this one is."""
        shown = {}
        for name, realm in self.realms.realms.items():
            clusters = {one: {"current": True} if (name, one) == self._current else {} for one in realm.clusters}
            if clusters:
                shown[name] = {"clusters": clusters}
        return {"realms": shown}
