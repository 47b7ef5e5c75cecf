"""The sections of the settings file. Each field's description gives its meaning, its unit and its reason."""

from __future__ import annotations

import ipaddress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from swiftlet.folds import FOLD_AFTER_S, FOLDS_A_DEVICE
from swiftlet.names import HashPath
from swiftlet.ring.model import Coding, WriteQuorum
from swiftlet.settings.base import MIB, DeviceName, Host, Port, Seconds, Section
from swiftlet.settings.replication import RoundsSection
from swiftlet.settings.secret import MIN_KEY_BYTES, read_key_file, read_suffix_file, suffix_id

ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - services of a cluster are reached from other nodes
EtagKind = Literal["md5", "xxh3"]
AGGREGATE_BELOW, MAX_AGGREGATE_BELOW = MIB, 4 * MIB
"""Larger objects never share a volume file: an object in one is read as a whole and checked before its first byte is
sent.
"""
MAX_PACK_BELOW = 1 << 20
"""The largest object that a policy with erasure coding keeps as copies."""
MAX_PACK_BYTES = 256 * MIB
"""The largest pack of small objects: one that is lost takes along all that is in it."""
MAX_PACK_AFTER_S = 10 * 365 * 86_400.0
"""The longest time that a small object may be left a copy for, in seconds, before it counts as cold."""
MAX_PACK_LIVE_SHARE = 0.95
"""The largest share of a pack below which it may be written anew: with 1 one deletion would write a whole pack."""


class ClusterSection(Section):
    """Settings that must be the same for all services of a cluster."""

    name: str = Field(
        default="swiftlet",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Name of the cluster, in logs and metrics. Lower-case letters, digits and '-'.",
    )
    hash_path_prefix: SecretStr = Field(
        default=SecretStr(""),
        description="Secret text that is hashed before every name. It prevents clients from choosing names that "
        "all fall into one partition. It is fixed for the cluster's life: changing it makes all data "
        "unreachable. At least one of prefix, suffix and the suffix's file must be set.",
    )
    hash_path_suffix: SecretStr = Field(
        default=SecretStr(""), description="Secret text that is hashed after every name; see hash_path_prefix."
    )
    hash_path_suffix_file: Path | None = Field(
        default=None,
        description="File with the text described at hash_path_suffix, which is used instead of that setting: a "
        "file keeps the text out of environments and process listings. Surrounding white space is not part of "
        "the text. Read once, at the start.",
    )
    key: SecretStr | None = Field(
        default=None,
        description=f"Secret that signs requests between nodes, tokens and grants; at least {MIN_KEY_BYTES} bytes. "
        "Give either key or key_file; a file keeps it out of environments and process listings.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File with the secret described at key, or with several, one per line. The first one signs and "
        "all are accepted, so a key can be changed without an interruption. White space around a key is not part "
        "of it. Read again when it changes.",
    )
    key_check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between checks of key_file; changed keys take effect within this time."
    )
    sealed_keys_directory: Path | None = Field(
        default=None,
        description="Directory with sealed copies of the keys, as the operator makes them (age files that no "
        "service can open). Object and container servers keep the newest copy on each device and serve it. With "
        "it, a service without its key files, or whose hash suffix differs from that of its devices, waits for "
        "the right ones instead of exiting. Not set: no copies are kept.",
    )
    rings: Path = Field(
        default=Path("/etc/swiftlet/rings"),
        description="Directory with account.ring, container.ring and object-<policy index>.ring, or with the "
        "chunks of each as <name>.ring.0, .1 and so on, as in ConfigMaps. Read again when they change.",
    )
    policies_file: Path | None = Field(
        default=None,
        description="File with the list described at policies, which is used instead of that setting. It is "
        "checked as often as the rings, so that policies can be added without a restart. A new policy takes "
        "effect once its ring exists.",
    )
    ring_cache: Path | None = Field(
        default=None,
        description="Directory in which each service keeps its last good rings, in a directory of its own; created "
        "if it is missing and its parent exists. With it, a service can start while a ring is half-updated or "
        "unreadable. It may be on a device, as .rings. Not set: such a service waits for good rings.",
    )
    ring_check_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between checks of the ring files. A check is a few stat calls; a new ring takes "
        "effect within this time.",
    )
    reclaim_age_s: Seconds = Field(
        default=7 * 86_400.0,
        description="Seconds for which all services remember deletions (tombstones). It must be longer than any "
        "device may be offline: otherwise objects that were deleted meanwhile reappear when the device returns.",
    )

    native_port_offset: int = Field(
        default=1000,
        ge=1,
        le=60_000,
        description="Number added to the HTTP port of an object or container server to get its native port, over "
        "which objects are transferred and container updates are sent. A server whose native port is taken by "
        "another program does not start.",
    )
    native_pool_bytes: int = Field(
        default=128 * MIB,
        ge=16 * MIB,
        le=1 << 40,
        description="Bytes of memory in each process for bodies in transfer over the native transport; allocated "
        "as needed. A transfer waits while all of it is in use.",
    )
    native_socket_directory: Path | None = Field(
        default=None,
        description="Directory for the sockets by which services on one machine pass each other bytes in shared "
        "memory instead of over TCP, and object servers those of clients with direct access. Not set: they use TCP.",
    )

    direct_access: bool = Field(
        default=False,
        description="Whether clients may transfer objects to and from the object servers themselves: metadata servers "
        "give grants (/v1/grants), and object servers let in who has one. Clients are then given the text that is "
        "hashed before and after names (see hash_path_prefix), which they need to find objects.",
    )

    rdma: Literal["auto", "required", "off"] = Field(
        default="auto",
        description="Whether bodies are transferred between services by RDMA, on each connection whose two ends "
        "support it, and otherwise by TCP. auto: if this installation was built with RDMA and has a device that "
        "works. required: a service without such a device does not start, and reports what is missing. off: no "
        "device is opened. `swiftlet rdma check` shows what is available. Each process with RDMA keeps "
        "native_pool_bytes locked in memory.",
    )

    encryption: Literal["none", "accepted", "required"] = Field(
        default="none",
        description="Whether traffic between services is encrypted (TLS 1.3; both sides present certificates "
        "derived from the cluster key): object bytes, names, metadata, rows and listings. none: no client "
        "encrypts, but servers accept encrypted connections. accepted: all clients encrypt, and servers still "
        "accept both. required: servers refuse peers that do not encrypt. Go from none to required by way of "
        "accepted, and restart all services at each step, so that no request is refused. This does not encrypt "
        "requests of the API (proxy.tls_cert_file), Redis (redis.url), and the pages that are open to everybody "
        "(/healthz, /readyz, /metrics, /statusz, /rings). Memory that services on one machine share is not "
        "encrypted. RDMA is used only with none.",
    )

    peer_silence_s: float = Field(
        default=1.5,
        ge=1.0,
        le=60.0,
        description="Seconds for which a peer of the native transport may be silent, or an RDMA read from it may "
        "make no progress, before its connection is closed and the requests on it fail. The default detects a "
        "dead machine within 2 s; use more for machines that stall, such as overcommitted virtual machines.",
    )

    @model_validator(mode="after")
    def _rdma_is_not_encrypted(self) -> ClusterSection:
        if self.rdma == "required" and self.encryption != "none":
            raise ValueError("rdma: required can't be used together with encryption: RDMA is not encrypted")
        return self

    @property
    def rdma_mode(self) -> Literal["auto", "required", "off"]:
        """Return whether RDMA is tried: not where everything has to be encrypted."""
        return self.rdma if self.encryption == "none" else "off"

    @model_validator(mode="after")
    def _secrets_are_given(self) -> ClusterSection:
        suffix = bool(self.hash_path_suffix.get_secret_value())
        if suffix and self.hash_path_suffix_file is not None:
            raise ValueError("set either hash_path_suffix or hash_path_suffix_file, not both")
        if not (self.hash_path_prefix.get_secret_value() or suffix or self.hash_path_suffix_file):
            raise ValueError("set hash_path_suffix (or hash_path_prefix) to a random text, the same on all nodes")
        if (self.key is None) == (self.key_file is None):
            raise ValueError("set exactly one of key and key_file")
        if self.key is not None and len(self.key.get_secret_value().encode()) < MIN_KEY_BYTES:
            raise ValueError(f"key is shorter than {MIN_KEY_BYTES} bytes")
        return self

    @cached_property
    def hash_path(self) -> HashPath:
        """Return the hash that places names, with this cluster's secrets. Raises SettingsError when the suffix's file
        is unusable.

        The file is read once: a suffix that changed while a service runs would hide all data from it.
        """
        return HashPath(self.hash_path_prefix.get_secret_value().encode(), self._suffix)

    @property
    def suffix_id(self) -> str:
        """Return the fingerprint of the suffix now in its file. Raises SettingsError when the file is unusable."""
        return suffix_id(self._suffix)

    @property
    def _suffix(self) -> bytes:
        if self.hash_path_suffix_file is not None:
            return read_suffix_file(self.hash_path_suffix_file)
        return self.hash_path_suffix.get_secret_value().encode()

    def read_keys(self) -> tuple[bytes, ...]:
        """Return the keys from `key` or `key_file`, the signing one first. Raises SettingsError if they are
        unusable.
        """
        if self.key is not None:
            return (self.key.get_secret_value().encode(),)
        assert self.key_file is not None, "the validator demands one of both"
        return read_key_file(self.key_file)


class CodingSection(Section):
    """Erasure coding of a policy: how the objects are divided into fragments, each on a device of its own."""

    data: int = Field(
        ge=2,
        le=16,
        description="Fragments with an object's bytes. Any that many fragments are enough to read it.",
    )
    parity: int = Field(
        ge=1,
        le=8,
        description="Fragments beside them, so many devices may be lost. The ring has data + parity replicas.",
    )
    cell_bytes: int = Field(
        default=64 * 1024,
        ge=1024,
        le=MIB,
        description="Bytes of an object after which the next fragment follows. None of the three can be changed once "
        "there are objects: object servers with objects of another coding do not start.",
    )

    @property
    def coding(self) -> Coding:
        """Return the same as a value."""
        return Coding(self.data, self.parity, self.cell_bytes)


class PolicySection(Section):
    """One storage policy: an object ring and the name clients choose it by."""

    index: int = Field(
        ge=0,
        le=255,
        description="Number of the policy. It is fixed for the policy's life, since it is stored with every object "
        "and container and names the ring file object-<index>.ring.",
    )
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$",
        description="Name in X-Storage-Policy and /info: letters, digits and '-', compared case-insensitively.",
    )
    default: bool = Field(
        default=False, description="Whether containers created without X-Storage-Policy get this policy."
    )
    deprecated: bool = Field(
        default=False,
        description="Whether new containers are refused this policy, and /info omits it; existing containers keep it.",
    )
    aggregate_below: int = Field(
        default=AGGREGATE_BELOW,
        ge=0,
        le=MAX_AGGREGATE_BELOW,
        description="Bytes up to which objects share volume files in native stores; larger ones have a file of their "
        "own. A change counts for objects that are written from then on.",
    )
    etag: EtagKind = Field(
        default="md5",
        description="The hash in ETags of new objects: md5, or xxh3 (`xxh3-` and the 32 hex digits of XXH3-128), which "
        "takes much less of the processor. A client that sends an MD5 as the ETag of its PUT gets that in both cases.",
    )
    write_quorum: WriteQuorum = Field(
        default="majority",
        description="Which durable copies acknowledge a write: majority, most of its replicas, wherever they are; "
        "local, as many in the region of the proxy, from where replicators bring them to the others; each-region, most "
        "of the replicas in each region. local counts for proxies that have a region; others write as majority.",
    )
    coding: CodingSection | None = Field(
        default=None,
        description="Erasure coding of the policy's objects; without it they have as many copies as the ring has "
        "replicas. Fixed for the policy's life.",
    )

    pack_below: int = Field(
        default=0,
        ge=0,
        le=MAX_PACK_BELOW,
        description="Bytes up to which an object of a policy with coding is kept as copies, on max(3, parity + 1) "
        "devices, and larger ones are coded; with 0 all are coded. Copies are written and read in one step and take "
        "that many times their size. A change counts for objects that are written from then on.",
    )

    @model_validator(mode="after")
    def _only_coded_objects_are_packed(self) -> PolicySection:
        if self.pack_below and self.coding is None:
            raise ValueError("pack_below is about objects with coding; set coding too, or remove pack_below")
        return self

    @model_validator(mode="after")
    def _coding_has_its_own_quorum(self) -> PolicySection:
        if self.coding is not None and self.write_quorum != "majority":
            raise ValueError(
                f"write_quorum: {self.write_quorum} can't be used together with coding, whose fragments are spread "
                "over all regions; remove one of the two"
            )
        return self


class LimitsSection(Section):
    """Limits that the API enforces and publishes in /info; the defaults are those of OpenStack Swift."""

    max_file_size: int = Field(
        default=5_368_709_122,
        ge=1,
        le=1 << 62,
        description="Bytes of the largest single object; larger ones have to be stored in segments.",
    )
    max_meta_name_length: int = Field(
        default=128, ge=1, description="Bytes of one metadata item's name without its prefix."
    )
    max_meta_value_length: int = Field(default=256, ge=1, description="Bytes of one metadata item's value.")
    max_meta_count: int = Field(default=90, ge=1, description="Metadata items on one account, container or object.")
    max_meta_overall_size: int = Field(
        default=4096, ge=1, description="Bytes of all metadata names and values together."
    )
    max_header_size: int = Field(
        default=8192, ge=1024, le=MIB, description="Bytes of one header line, and of the request line, that are read."
    )
    container_listing_limit: int = Field(
        default=10_000, ge=1, description="Maximum number of rows in one page of a container's listing."
    )
    account_listing_limit: int = Field(
        default=10_000, ge=1, description="Maximum number of rows in one page of an account's listing."
    )
    slo_max_manifest_segments: int = Field(
        default=1000, ge=1, le=100_000, description="Objects that one static large object's manifest may name."
    )
    slo_max_inline_segments: int = Field(
        default=2000,
        ge=0,
        le=200_000,
        description="Segments of one static large object's manifest that contain their bytes themselves (`data`). "
        "Adjacent ones can be joined, so twice the number of objects is enough.",
    )
    slo_max_manifest_size: int = Field(
        default=8 * MIB, ge=2, le=64 * MIB, description="Bytes of a manifest as clients send it, inline data included."
    )
    slo_min_segment_size: int = Field(
        default=1, ge=1, description="Bytes that every segment of a static large object but the last must have."
    )
    slo_concurrency: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Segments of one manifest that are checked or deleted at a time. A higher value answers sooner "
        "and causes more load.",
    )
    slo_yield_frequency_s: Seconds = Field(
        default=10.0,
        description="Seconds between pieces of white space that are sent to a client while its manifest is checked "
        "or deleted, so that nothing in between considers the connection dead.",
    )


class AuthSection(Section):
    """How clients log in: the users file, the life of tokens, limits of failed logins."""

    users_file: Path = Field(
        default=Path("/etc/swiftlet/users.yaml"),
        description="YAML list of users: account, user, roles (admin, user, reader, reseller_admin) and secret_hash "
        "(argon2id). Read again when it changes.",
    )
    users_check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between checks of users_file; a changed user takes effect within this time."
    )
    revocations_check_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between checks for tokens that other processes have revoked; the process that revokes "
        "a token refuses it at once. A check reads one page of a listing.",
    )
    token_life_s: int = Field(
        default=86_400,
        ge=60,
        le=31 * 86_400,
        description="Seconds for which a token is valid. The default is a day, as in OpenStack Swift.",
    )
    max_failures: int = Field(
        default=10,
        ge=1,
        description="Failed logins of one user from one address within failure_window_s after which further ones "
        "are refused (429); all users from one address together may fail 20 times as often. Each process counts "
        "for itself. The default allows for typing errors, but not for guessing.",
    )
    failure_window_s: Seconds = Field(default=60.0, description="Seconds over which failed logins are counted.")
    trusted_proxies: list[str] = Field(
        default=[],
        description="Networks (CIDR) of load balancers whose X-Forwarded-For header is trusted to name the address "
        "of a login. The header is ignored in requests from other addresses.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        for text in value:
            ipaddress.ip_network(text)
        return value

    @property
    def trusted_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Return the networks of `trusted_proxies`."""
        return [ipaddress.ip_network(text) for text in self.trusted_proxies]


class QuotaSection(Section):
    """Settings of the quotas of accounts and containers."""

    file: Path | None = Field(
        default=None,
        description="YAML file with quota levels and the level of each account; docs/guide/configure.md shows one. "
        "Read again when it changes. Not set: no limits.",
    )
    check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between checks of file; changed limits take effect within this time."
    )


class NodeTimeouts(Section):
    """How long a service waits for another one."""

    connect_timeout_s: Seconds = Field(
        default=0.5,
        description="Seconds to connect to a storage node. Nodes are in the same network: a node that takes longer "
        "is down or overloaded, and another replica is used.",
    )
    answer_timeout_s: Seconds = Field(
        default=10.0, description="Seconds to wait for a storage node's answer, or for the next part of it."
    )


class ProxySection(NodeTimeouts):
    """The Swift API server."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=8080, description="TCP port of the API.")
    management_port: Port = Field(
        default=8081,
        description="TCP port of `/metrics` and `/statusz`, always in plain HTTP. These pages name servers, keys "
        "and rates, so make the port reachable only for administrators of the store.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes that share the port. Use one per core that the proxy may use; 1 starts no extra "
        "process.",
    )
    client_timeout_s: Seconds = Field(
        default=60.0, description="Seconds to wait until a client sends or receives the next bytes."
    )
    small_object_bytes: int = Field(
        default=MIB,
        ge=0,
        le=64 * MIB,
        description="Objects of up to this many bytes are buffered and stored in one round trip per replica; "
        "larger ones are streamed. Each such upload in progress holds at most this much memory.",
    )
    post_quorum_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=0.5,
        description="Seconds to wait for the remaining replicas once a quorum has answered, so that slow replicas "
        "can finish and the replicator need not copy the object to them.",
    )
    row_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=2.0,
        description="Seconds for which a write waits for its container update, so that a listing shows the new "
        "object. After that time the object servers deliver the update.",
    )
    container_info_ttl_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Seconds for which a worker caches a container's policy and existence. ACLs, keys and quotas "
        "are checked once a second while they are used, and are cached for this long only while no container "
        "server can be reached; 0 checks at every request.",
    )
    front: bool = Field(
        default=True,
        description="Whether a native thread answers GET and HEAD of plain objects, using what Python "
        "decided a moment ago; Python answers all other requests. It also speaks TLS, if a certificate is "
        "set, for both. `front` at /statusz reports whether it runs. false: Python accepts connections itself, and "
        "speaks TLS.",
    )
    front_put: bool = Field(
        default=True,
        description="With front: whether that thread also stores objects of up to 32 MiB, or 16 where MD5 is needed, "
        "and deletes objects where no versioning or rate limit applies, within room that is held ahead where quotas "
        "apply. It answers when all replicas are durable and the row is listed.",
    )
    region: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The region in which this proxy is, as rings name it. Copies and listings are then read from the "
        "nearest device: in its zone, then in its region, then elsewhere. Not set: from any.",
    )
    zone: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The zone in which this proxy is, as rings name it; needs region."
    )
    storage_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$",
        description="Base URL of the API as clients reach it, such as https://objects.example.org; returned in "
        "X-Storage-Url. Not set: taken from the request's Host header.",
    )
    tls_cert_file: Path | None = Field(
        default=None,
        description="PEM file with the certificate of the API and its chain: the port then serves only HTTPS (TLS "
        "1.2 or later). Needs tls_key_file. Read again when it changes; open connections keep the old one. Not "
        "set: plain HTTP.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="PEM file with the certificate's key, without a password; see tls_cert_file."
    )
    tls_check_interval_s: Seconds = Field(default=5.0, description="Seconds between checks of the certificate's files.")
    backlog: int = Field(
        default=1024,
        ge=1,
        le=65_535,
        description="Connections that may wait per worker to be accepted; the kernel caps it at net.core.somaxconn.",
    )
    idle_drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Part of drain_s: seconds after SIGTERM for which idle connections stay open, so that the next "
        "request on each is answered and its client is told to connect elsewhere. Without idle connections the "
        "process does not wait. 0 closes them at once.",
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> ProxySection:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("set both tls_cert_file and tls_key_file, or neither")
        return self

    @model_validator(mode="after")
    def _zone_is_in_a_region(self) -> ProxySection:
        if self.zone is not None and self.region is None:
            raise ValueError("zone needs region: equal names of zones in two regions are two zones")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> ProxySection:
        _must_differ(self.port, self.management_port)
        return self


class ObjectSection(NodeTimeouts):
    """The object server: the devices of one pod or node."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=6200, description="TCP port. It is part of the devices' addresses in the ring.")
    devices_dir: Path = Field(
        default=Path("/srv/swiftlet"), description="Directory below which each device is mounted under its name."
    )
    devices: tuple[DeviceName, ...] = Field(
        min_length=1, description="Names of the served devices, as in the ring. Only one process may own a device."
    )
    ring_host: Host | None = Field(
        default=None,
        description="Host of this server as it is in the rings. Clients of the native transport say which server "
        "they mean by this name. Not set: the address to listen on if that is not all addresses, otherwise this "
        "machine's host name.",
    )
    guest_pool_bytes: int = Field(
        default=32 * MIB,
        ge=2 * MIB,
        le=1 << 40,
        description="Bytes of memory for bodies of clients that have direct access (cluster.direct_access), beside "
        "cluster.native_pool_bytes; allocated as needed. Their transfers wait while all of it is in use.",
    )
    guest_connections: int = Field(
        default=2048,
        ge=1,
        le=65_536,
        description="Connections that clients with direct access may have together; further ones are refused.",
    )
    guest_shared_bytes: int = Field(
        default=64 * MIB,
        ge=0,
        le=1 << 40,
        description="Bytes of memory from which objects are passed to clients with direct access on this machine, 4 "
        "MiB for each connection, if cluster.native_socket_directory is set; allocated as needed. Of further "
        "connections the objects go through their sockets.",
    )
    compact_bytes_per_s: int = Field(
        default=50 * MIB,
        ge=0,
        description="Bytes per second and device that the native store copies to reclaim the space of deleted "
        "objects; 0 sets no limit.",
    )
    audit_bytes_per_s: int = Field(
        default=10 * MIB,
        ge=0,
        description="Bytes per second and device that the native store reads to find damage before a client does; "
        "0 turns this off. At 10 MiB/s, a device of 4 TB is read in five days.",
    )
    reserve_bytes: int = Field(
        default=0,
        ge=0,
        description="Bytes kept free on each device; below them writes are refused (507). The larger of this and "
        "reserve_percent counts.",
    )
    reserve_percent: Annotated[float, Field(ge=0, lt=100)] = Field(
        default=1.0,
        description="Percentage of each device that is kept free: deletes, compaction and repair need space on a "
        "full device.",
    )
    threads_per_device: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Threads that work on one device. A slow device blocks only its own threads; a higher value "
        "helps fast devices with deep queues.",
    )
    max_requests_per_device: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Requests in progress on one device at a time. Further ones are refused (503), so that another "
        "replica is used instead of waiting for a slow device.",
    )
    require_mount: bool = Field(
        default=False,
        description="Whether a device's directory must be a mount point. This keeps data off the root file system "
        "when a device is not mounted.",
    )
    row_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=2.0,
        description="Seconds for which a container server may take to answer when this server delivers a container "
        "update that no proxy has delivered.",
    )
    row_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between deliveries of container updates that no proxy has delivered, and the first pause "
        "after a container server could not accept one.",
    )


class ContainerSection(NodeTimeouts):
    """The account and container server: the databases on one pod or node."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=6300, description="TCP port. It is part of the devices' addresses in the ring.")
    devices_dir: Path = Field(
        default=Path("/srv/swiftlet"), description="Directory below which each device is mounted under its name."
    )
    devices: tuple[DeviceName, ...] = Field(
        min_length=1, description="Names of the served devices, as in the ring. Only one process may own a device."
    )
    threads_per_device: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Threads that work on one device's databases; SQLite blocks a thread while it syncs.",
    )
    ring_host: Host | None = Field(
        default=None,
        description="Host of this server as it is in the rings, so that it recognizes its own devices there. Not "
        "set: the address to listen on if that is not all addresses, otherwise any name that begins with this "
        "machine's host name, as for the pods of a StatefulSet.",
    )
    reserve_bytes: int = Field(
        default=64 * MIB, ge=0, description="Bytes kept free on each device; databases do not grow when less is free."
    )
    open_databases: int = Field(
        default=1024,
        ge=1,
        le=100_000,
        description="Databases kept open per device; each takes three descriptors or more and some 200 KB of memory. "
        "Where more containers are written to at a time, their files are opened and closed all the time, which costs "
        "more than what is done in them.",
    )
    native_updates: bool = Field(
        default=True,
        description="Whether proxies may bring container updates over the native transport, to native code that "
        "answers them without Python; see cluster.native_port_offset. false: they send them over HTTP.",
    )
    fold_after_s: Annotated[float, Field(gt=0, le=60)] = Field(
        default=FOLD_AFTER_S,
        description="Seconds within which updates that native code has taken are merged into their container's "
        "database, together; up to 32 times later where many containers are in use, of which a device merges some "
        f"{FOLDS_A_DEVICE} in this time. Many updates of one container, and those that somebody asks for, are merged "
        "at once.",
    )
    account_update_interval_s: Seconds = Field(
        default=1.0, description="Seconds between reports of changed container totals to their accounts."
    )
    recount_interval_s: float = Field(
        default=7 * 86_400.0,
        ge=0.0,
        description="Seconds between two passes that count the rows of all databases and correct totals that "
        "differ; 0 turns this off.",
    )
    usage_interval_s: Seconds = Field(
        default=60.0,
        description="Seconds between walks over the account databases that determine which accounts hold most, for "
        "the status of StorageQuota and StorageUser objects. The StorageQuota's usageSeconds determines how "
        "often that status is written.",
    )
    deprecated_policy_grace_s: Seconds = Field(
        default=300.0,
        description="Seconds after which this server refuses new containers of a deprecated policy too. Until then "
        "the proxies refuse them; they may learn of the change later or earlier than this server.",
    )
    shard_above_rows: int = Field(
        default=1_000_000,
        ge=0,
        le=1_000_000_000,
        description="Objects in one container's database above which it is split into ranges of names, each in a "
        "database of its own on other devices. The value must be the same on all container servers. 0: "
        "containers are never split, and split ones stay split. Nothing is split while one of its holders is "
        "unreachable.",
    )
    shard_takeover_s: Seconds = Field(
        default=60.0,
        description="Seconds after which the next holder of a container splits it if the previous one has not.",
    )


class MetadataSection(NodeTimeouts):
    """The metadata server: tells authorised clients where objects are."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=8090, description="TCP port of the metadata server.")
    management_port: Port = Field(
        default=8091, description="TCP port of `/metrics` and `/statusz`; see `proxy.management_port`."
    )
    workers: int = Field(
        default=1, ge=1, le=256, description="Processes that share the port; 1 starts no extra process."
    )
    container_info_ttl_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0, description="Seconds for which a worker caches a container's policy; 0 checks at every request."
    )
    grant_life_s: int = Field(
        default=60,
        ge=1,
        le=900,
        description="Seconds for which a grant is valid unless its client asks for another life. A right that is taken "
        "away counts for direct access when grants end, or when they are revoked (DELETE /v1/grants/ACCOUNT).",
    )
    max_grant_life_s: int = Field(
        default=900, ge=1, le=900, description="The longest life in seconds that clients may ask for."
    )
    idle_drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Part of drain_s: seconds after SIGTERM for which idle connections stay open, so that the next "
        "request on each is answered and its client is told to connect elsewhere. Without idle connections the "
        "process does not wait. 0 closes them at once.",
    )

    @model_validator(mode="after")
    def _ports_differ(self) -> MetadataSection:
        _must_differ(self.port, self.management_port)
        return self


def _must_differ(port: int, management_port: int) -> None:
    if port == management_port:
        raise ValueError(f"port and management_port are both {port}; give them different ports")


DeviceAddress = Annotated[str, Field(pattern=r"^[^\s/]+:[0-9]{1,5}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""The address of a device: host:port/device."""


class ReplicatorSection(RoundsSection, NodeTimeouts):
    """The replicator: brings replicas of the local devices and their peers into agreement."""

    host: Host = Field(default=ALL_INTERFACES, description="Address for health checks and metrics.")
    port: Port = Field(default=6400, description="TCP port for health checks and metrics.")
    devices: tuple[DeviceAddress, ...] = Field(
        default=(),
        description="The devices this replicator works for, as host:port/device with host and port as in the ring.",
    )
    databases: tuple[DeviceAddress, ...] = Field(
        default=(),
        description="Devices of container servers, instead of devices: this replicator then compares their account "
        "and container databases. One process handles either kind, not both. Some replicator must name each "
        "device of a container server, since container servers do not compare by themselves.",
    )
    interval_s: Seconds = Field(
        default=10.0,
        description="Seconds between the starts of two rounds; after a round that takes longer, the next one "
        "starts at once.",
    )
    database_interval_s: Seconds = Field(
        default=5.0,
        description="The same for rounds over databases. It determines how long a listing may lack rows that only "
        "another replica has.",
    )
    listing_audit_interval_s: float = Field(
        default=3600.0,
        ge=0.0,
        description="Seconds between two passes of the listing audit, which compares containers' rows with objects "
        "in both directions and corrects differences; 0 turns it off. Databases that have not changed are "
        "audited once a week.",
    )
    listing_audit_rows_per_s: float = Field(
        default=100.0,
        ge=0.0,
        description="Rows or objects that the listing audit checks per second at most; 0 for no limit.",
    )
    listing_audit_share: float = Field(
        default=0.1,
        gt=0.0,
        le=1.0,
        description="The largest share of its time for which the listing audit works or waits for answers, so that "
        "it slows down when servers are busy; 1 for no limit.",
    )
    listing_audit_min_age_s: float = Field(
        default=60.0,
        ge=0.0,
        description="Seconds for which the listing audit skips new writes, whose row may still be on its way. If "
        "this is shorter than pending container updates and rounds need, the audit counts late rows as wrong.",
    )
    concurrency: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Partitions compared at a time. A higher value finds differences sooner and causes more disk load.",
    )
    coded_recovery_after_s: float = Field(
        default=600.0,
        ge=10.0,
        le=86_400.0,
        description="Seconds for which a write with erasure coding that is neither finished nor given up is left to "
        "its proxy. After them the devices decide among themselves whether it counts. A lower value may end writes "
        "whose proxy has only been slow; they are answered with 503.",
    )
    coded_max_fragments: int = Field(
        default=16_384,
        ge=1,
        le=1_000_000,
        description="Fragments of objects with erasure coding that a round rebuilds at most, those of the least "
        "redundant objects first. What is left over is done in the next round, which follows at once. A round keeps "
        "about 0.5 KB in memory for each.",
    )
    coded_max_bytes: int = Field(
        default=16 << 30,
        ge=1 << 20,
        description="Bytes of fragments that a round rebuilds at most; those that are being made then are finished.",
    )
    pack_after_s: float = Field(
        default=86_400.0,
        ge=0.0,
        le=MAX_PACK_AFTER_S,
        description="Seconds since its last write after which a small object that is kept as copies (pack_below of its "
        "policy) is put into a pack, which takes about half of the space of three copies "
        "or less. 0 turns that off; what is packed stays so. "
        "Every partition is looked at four times in this time, and every six hours at least. A lower value saves space "
        "sooner, and puts objects into packs that are soon overwritten or deleted, which costs the work of packing.",
    )
    pack_least_bytes: int = Field(
        default=4 * MIB,
        ge=1,
        le=MAX_PACK_BYTES,
        description="Bytes of cold small objects that a partition must have for a pack. A lower value packs more of "
        "the objects of a small store, into more and smaller packs.",
    )
    pack_most_bytes: int = Field(
        default=64 * MIB,
        ge=1024,
        le=MAX_PACK_BYTES,
        description="Bytes that a pack has at most.",
    )
    pack_live_share: float = Field(
        default=0.7,
        ge=0.0,
        le=MAX_PACK_LIVE_SHARE,
        description="Share of a pack that objects refer to below which these are put into a new pack, with what is "
        "cold, and the old pack is deleted. What was deleted or overwritten takes its space until then. A higher value "
        "gives space back sooner, and writes what is left more often; 0 does so only when nothing is left.",
    )
    pack_round_bytes: int = Field(
        default=256 * MIB,
        ge=1024,
        description="Bytes of packs after which a round makes no further one; bytes_per_s limits them too.",
    )
    mode: Literal["batched", "lightsync", "all_to_all", "star", "chain"] = Field(
        default="batched",
        description="How rounds compare. batched: each peer is asked once about all partitions shared with it, and "
        "differences are resolved in both directions. The other modes exist for measurements, and only push: "
        "lightsync (one root at a time to the next replica), all_to_all (all suffix hashes to all), star, chain. "
        "In a mode that does not compare with all other replicas a device never reports to be in sync, which the "
        "operator waits for.",
    )

    @model_validator(mode="after")
    def _packs_can_be_made(self) -> Self:
        if self.pack_least_bytes > self.pack_most_bytes:
            raise ValueError(
                f"pack_least_bytes: {self.pack_least_bytes} is more than pack_most_bytes ({self.pack_most_bytes}); "
                "lower the one or raise the other"
            )
        return self

    @model_validator(mode="after")
    def _one_kind_of_devices(self) -> Self:
        if bool(self.devices) == bool(self.databases):
            raise ValueError("set either devices (of object servers) or databases (devices of container servers)")
        return self


class LogSection(Section):
    """What is logged, and how it is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is written; the access log has level info."
    )
    format: Literal["json", "console"] = Field(
        default="json", description="json: one JSON object per line, for programs. console: aligned text, for people."
    )
