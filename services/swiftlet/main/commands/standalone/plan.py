"""Plans which services run, with which settings and ports, from options and free ports. Pure; it changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from swiftlet.errors import SettingsError
from swiftlet.settings.sections import CodingSection

HOST = "127.0.0.1"
"""The address of the storage services, which only the proxy reaches."""
OBJECT_DEVICES = 4
"""Devices of a store whose objects have copies; with erasure coding there is one more than an object has fragments."""
CONTAINER_DEVICES = 3
REPLICAS = 3
"""Copies of objects without erasure coding, and of databases."""
DRAIN_S = 10.0
NATIVE_PORT_OFFSET = 1000
"""The native port of an object or container server is its HTTP port plus this."""
POLICIES = ("Policy-0", "Policy-1")
"""The storage policies of a new store; there are two so that clients that need several can be tried."""
_MAX_SOCKET_DIRECTORY = 64
"""The longest path of the directory in bytes, because the system limits the length of a socket's path."""
_LAST_PORT = 65_535
_POLICY = re.compile(r"([A-Za-z0-9-]{1,64})(?:=([0-9]{1,3})\+([0-9]{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a local store."""

    data: Path
    host: str = HOST
    port: int = 8080
    base_port: int = 6200
    workers: int = 2
    user: str | None = None
    """`account:user`; None keeps the user of the data directory, `test:tester` at first."""
    key: str | None = None
    """The user's secret; None keeps it, or makes one at first."""
    policies: tuple[str, ...] = ()
    """Storage policies, the default first: `NAME`, or `NAME=K+M` with erasure coding. None keeps those of the data
    directory, `POLICIES` at first.
    """
    pack_below: int = 0
    """Bytes up to which objects with erasure coding are kept as copies, and packed when they are cold."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below the data directory."""

    data: Path

    @property
    def etc(self) -> Path:
        """Return the directory of settings and secrets."""
        return self.data / "etc"

    @property
    def rings(self) -> Path:
        """Return the directory of ring and builder files."""
        return self.data / "rings"

    @property
    def devices(self) -> Path:
        """Return the directory with a directory per device, which has the data."""
        return self.data / "devices"

    @property
    def log(self) -> Path:
        """Return the directory with a log file per service."""
        return self.data / "log"

    @property
    def sockets(self) -> Path:
        """Return the directory of the sockets by which storage servers and their clients share memory."""
        return self.data / "run"

    @property
    def lock(self) -> Path:
        """Return the file that is locked while the store runs; it has the supervisor's process id."""
        return self.data / "swiftlet.pid"

    @property
    def secrets(self) -> Path:
        """Return the file with the secrets that the first start makes."""
        return self.etc / "secrets.json"

    @property
    def key_file(self) -> Path:
        """Return the path of the file with the cluster key."""
        return self.etc / "cluster.key"

    @property
    def policies(self) -> Path:
        """Return the file with the storage policies as `--policies` has them, in the order of their indexes."""
        return self.etc / "policies.json"

    @property
    def users(self) -> Path:
        """Return the path of the users file."""
        return self.etc / "users.yaml"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secrets that are made once and kept; without `hash_path_suffix` the data are lost."""

    hash_path_suffix: str = field(repr=False)
    cluster_key: str = field(repr=False)
    user: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    """One storage policy; the one with index 0 is the default."""

    index: int
    name: str
    coding: CodingSection | None = None
    """Its erasure coding; None of one with copies."""
    pack_below: int = 0
    """Bytes up to which its objects are kept as copies, if it has erasure coding."""

    def __str__(self) -> str:
        return self.name if self.coding is None else f"{self.name}={self.coding.coding}"

    @property
    def replicas(self) -> int:
        """Return the replicas of the policy's ring."""
        return REPLICAS if self.coding is None else self.coding.coding.fragments

    @property
    def devices(self) -> int:
        """Return how many devices there have to be for it."""
        return OBJECT_DEVICES if self.coding is None else self.replicas + 1

    @property
    def settings(self) -> dict[str, Any]:
        """Return the policy in the form of the services' settings."""
        settings = {"index": self.index, "name": self.name} | ({"default": True} if self.index == 0 else {})
        if self.coding is None:
            return settings
        return settings | {"coding": self.coding.model_dump(), "pack_below": self.pack_below}


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """One device: its directory's name, its zone, and the port of its server."""

    name: str
    zone: str
    port: int


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """One process to run."""

    name: str
    kind: str
    """The subcommand of `swiftlet`."""
    port: int
    config: Path
    log: Path
    settings: dict[str, Any] = field(repr=False)
    management_port: int
    """The port of `/metrics` and `/statusz`; the same as `port` where clients do not reach that."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All processes to run, in the order in which they are started."""

    layout: Layout
    options: Options
    secrets: Secrets
    services: tuple[ServicePlan, ...]
    object_devices: tuple[DevicePlan, ...]
    container_devices: tuple[DevicePlan, ...]
    policies: tuple[PolicyPlan, ...]

    @property
    def endpoint(self) -> str:
        """Return the API's base URL."""
        host = HOST if self.options.host in {"0.0.0.0", "::"} else self.options.host  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.options.port}" if ":" in host else f"http://{host}:{self.options.port}"

    @property
    def auth_url(self) -> str:
        """Return the URL at which clients get tokens."""
        return f"{self.endpoint}/auth/v1.0"

    @property
    def metrics_url(self) -> str:
        """Return the URL of the API server's metrics."""
        port = next(service.management_port for service in self.services if service.kind == "proxy")
        return f"http://{HOST}:{port}/metrics"


def free_ports(base: int, is_free: Callable[[int], bool], reserved: int) -> Iterator[int]:
    """Yield free ports from `base` upwards, without `reserved`. Raises SettingsError when they run out."""
    for port in range(base, _LAST_PORT + 1):
        if port != reserved and is_free(port):
            yield port
    raise SettingsError(f"no free ports are left from {base} upwards; choose a lower --base-port")


def with_native(ports: Iterator[int], is_free: Callable[[int], bool], reserved: int) -> Iterator[int]:
    """Yield the ports whose native port is free too. Raises SettingsError when they run out."""
    for port in ports:
        native = port + NATIVE_PORT_OFFSET
        if native <= _LAST_PORT and native != reserved and is_free(native):
            yield port


def plan_policies(known: Sequence[str], wanted: Sequence[str]) -> tuple[PolicyPlan, ...]:
    """Return the policies of a store that has some already, in the order of their indexes.

    Policies can be added to a store; none is removed, or gets another index or coding. Raises SettingsError.
    """
    chosen = tuple(wanted or known or POLICIES)
    policies = tuple(_plan_policy(index, text) for index, text in enumerate(chosen))
    if [str(policy) for policy in policies[: len(known)]] != list(known):
        raise SettingsError(
            f"--policies {','.join(chosen)}: this store has {', '.join(known)}; name these first and in this order"
        )
    if len({policy.name.lower() for policy in policies}) != len(policies):
        raise SettingsError(f"--policies {','.join(chosen)}: a name is given twice")
    return policies


def _plan_policy(index: int, text: str) -> PolicyPlan:
    match = _POLICY.fullmatch(text)
    if match is None:
        raise SettingsError(
            f"--policies: {text!r} is not a valid policy; use a name of letters, digits and '-', and after it =K+M for "
            "erasure coding with K data and M parity fragments, such as cold=4+2"
        )
    name, data, parity = match.groups()
    if data is None:
        return PolicyPlan(index, name)
    try:
        return PolicyPlan(index, name, CodingSection(data=int(data), parity=int(parity)))
    except ValidationError as error:
        problem = error.errors()[0]
        raise SettingsError(f"--policies: {text}: {problem['loc'][0]} fragments: {problem['msg']}") from error


def make_plan(
    options: Options, secrets: Secrets, is_free: Callable[[int], bool], known_policies: Sequence[str] = ()
) -> Plan:
    """Return the plan for `options`; `is_free` tells whether nobody listens on a port."""
    policies = plan_policies(known_policies, options.policies)
    if options.pack_below and not any(policy.coding for policy in policies):
        raise SettingsError(
            "--pack-below: no storage policy of this store has erasure coding; add one with --policies, as in cold=4+2"
        )
    policies = tuple(replace(policy, pack_below=options.pack_below) for policy in policies)
    layout = Layout(options.data)
    ports = free_ports(options.base_port, is_free, options.port)
    pairs = with_native(ports, is_free, options.port)
    object_devices = max(policy.devices for policy in policies)
    objects = tuple(DevicePlan(f"d{n}", f"z{n}", next(pairs)) for n in range(1, object_devices + 1))
    containers = tuple(DevicePlan(f"c{n}", f"z{n}", next(pairs)) for n in range(1, CONTAINER_DEVICES + 1))
    make = _Maker(layout, secrets, options, policies)
    services = [make.object_server(n, device) for n, device in enumerate(objects, 1)]
    services += [make.container_server(n, device) for n, device in enumerate(containers, 1)]
    services.append(make.replicator("replicator", next(ports), "devices", objects))
    services.append(make.metadata(next(ports), next(ports)))
    services.append(make.replicator("database-replicator", next(ports), "databases", containers))
    services.append(make.proxy(options, next(ports)))
    return Plan(layout, options, secrets, tuple(services), objects, containers, policies)


def _meeting_place(layout: Layout) -> dict[str, str]:
    directory = str(layout.sockets.absolute())
    return {"native_socket_directory": directory} if len(directory.encode()) <= _MAX_SOCKET_DIRECTORY else {}


class _Maker:
    """Makes service plans with what they have in common."""

    def __init__(self, layout: Layout, secrets: Secrets, options: Options, policies: Sequence[PolicyPlan]) -> None:
        self._layout = layout
        self._common: dict[str, Any] = {
            "cluster": {
                "name": "standalone",
                "hash_path_suffix": secrets.hash_path_suffix,
                "key_file": str(layout.key_file),
                "rings": str(layout.rings),
                "ring_check_interval_s": 1.0,
                "native_port_offset": NATIVE_PORT_OFFSET,
                **_meeting_place(layout),
            },
            "policies": [policy.settings for policy in policies],
            "drain_s": DRAIN_S,
        }

    def _service(
        self, name: str, kind: str, port: int, management_port: int | None = None, **sections: Any
    ) -> ServicePlan:
        config, log = self._layout.etc / f"{name}.yaml", self._layout.log / f"{name}.log"
        return ServicePlan(name, kind, port, config, log, {**self._common, **sections}, management_port or port)

    def _storage(self, device: DevicePlan) -> dict[str, Any]:
        return {"host": HOST, "port": device.port, "devices_dir": str(self._layout.devices), "devices": [device.name]}

    def object_server(self, number: int, device: DevicePlan) -> ServicePlan:
        return self._service(f"object-{number}", "object", device.port, object=self._storage(device))

    def container_server(self, number: int, device: DevicePlan) -> ServicePlan:
        return self._service(f"container-{number}", "container", device.port, container=self._storage(device))

    def replicator(self, name: str, port: int, kind: str, devices: tuple[DevicePlan, ...]) -> ServicePlan:
        """Return the plan of a replicator; `kind` is the setting that names what it works on."""
        local = [f"{HOST}:{device.port}/{device.name}" for device in devices]
        return self._service(name, "replicator", port, replicator={"host": HOST, "port": port, kind: local})

    def metadata(self, port: int, management_port: int) -> ServicePlan:
        section = {"host": HOST, "port": port, "management_port": management_port, "idle_drain_s": 0}
        return self._service("metadata", "metadata", port, management_port, metadata=section, auth=self._auth())

    def proxy(self, options: Options, management_port: int) -> ServicePlan:
        section = {"host": options.host, "port": options.port, "workers": options.workers}
        # All services end together, so clients could not ask another one.
        section |= {"management_port": management_port, "idle_drain_s": 0}
        return self._service("proxy", "proxy", options.port, management_port, proxy=section, auth=self._auth())

    def _auth(self) -> dict[str, Any]:
        return {"users_file": str(self._layout.users), "users_check_interval_s": 1.0}
