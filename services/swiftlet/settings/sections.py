"""The sections of the settings file. Each field's description gives its meaning, its unit, and why it is what it is."""

from __future__ import annotations

import ipaddress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from swiftlet.names import HashPath
from swiftlet.settings.base import MIB, DeviceName, Host, Port, Seconds, Section
from swiftlet.settings.replication import RoundsSection
from swiftlet.settings.secret import MIN_KEY_BYTES, read_key_file, read_suffix_file, suffix_id

ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - services of a cluster are reached from other nodes


class ClusterSection(Section):
    """What every service of one cluster must agree on."""

    name: str = Field(
        default="swiftlet",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Name of the cluster, in logs and metrics. Lower-case letters, digits and '-'.",
    )
    hash_path_prefix: SecretStr = Field(
        default=SecretStr(""),
        description="Secret text hashed before every name. Fixed for the cluster's life: a change loses all data. "
        "Keeps clients from choosing names that all fall into one partition. "
        "At least one of prefix, suffix and the suffix's file must be set.",
    )
    hash_path_suffix: SecretStr = Field(
        default=SecretStr(""), description="Secret text hashed behind every name; see hash_path_prefix."
    )
    hash_path_suffix_file: Path | None = Field(
        default=None,
        description="File with the text described at hash_path_suffix, in its place: it keeps the text out of "
        "environments and process listings. White space around it is not part of it. Read once, at the start.",
    )
    key: SecretStr | None = Field(
        default=None,
        description=f"Secret that signs requests between nodes, tokens and grants; at least {MIN_KEY_BYTES} bytes. "
        "Give either key or key_file; a file keeps it out of environments and process listings.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File with the secret described at key, or with several, one per line: the first one signs, all "
        "are accepted, so that a key can be changed without a pause. White space around a key is not part of it. "
        "Read again when it changes.",
    )
    key_check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between looks at key_file; changed keys take effect within this time."
    )
    sealed_keys: Path | None = Field(
        default=None,
        description="Directory with sealed copies of the keys, as the operator makes them (age files that no service "
        "can open). Servers of devices keep the newest on each device and hand it out. With it a service whose key "
        "files are not there, or whose hash suffix is another than its devices', waits for the right ones instead of "
        "ending. Not set: no copies are kept.",
    )
    rings: Path = Field(
        default=Path("/etc/swiftlet/rings"),
        description="Directory with account.ring, container.ring and object-<policy index>.ring, or with the chunks of "
        "each as <name>.ring.0, .1 and so on, as ConfigMaps hold them; read again when they change.",
    )
    policies_file: Path | None = Field(
        default=None,
        description="File with the list described at policies, in its place: looked at as often as the rings, so that "
        "policies can be added without a restart. A new one takes effect once its ring is there.",
    )
    ring_cache: Path | None = Field(
        default=None,
        description="Directory that keeps the last good rings, in a directory per service; made when missing, if what "
        "is above is there. With it a service can start while a ring is half-updated or can't be read. It may be on a "
        "device, as .rings. Not set: such a service waits for good rings.",
    )
    ring_check_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between looks at the ring files. A look is a few stat calls; a new ring takes effect "
        "within this time.",
    )
    reclaim_age_s: Seconds = Field(
        default=7 * 86_400.0,
        description="Seconds that deletions are remembered, everywhere. Must be longer than any device may stay away: "
        "what was deleted meanwhile would come back with it otherwise.",
    )

    object_transport: Literal["auto", "http", "native"] = Field(
        default="auto",
        description="How objects move between services. auto: natively where a server's native port answers, else "
        "over HTTP, decided per server and looked at again; http: no native port is opened or used; native: never over "
        "HTTP, so only where all devices are native stores. What replicators compare goes over HTTP in any case.",
    )
    native_port_offset: int = Field(
        default=1000,
        ge=1,
        le=60_000,
        description="An object server's native port is its HTTP port plus this.",
    )
    native_pool_bytes: int = Field(
        default=128 * MIB,
        ge=16 * MIB,
        le=1 << 40,
        description="Memory of each process for bodies on their way over the native transport; taken as it is needed. "
        "A transfer that finds it full waits.",
    )
    native_socket_directory: Path | None = Field(
        default=None,
        description="Directory in which services on the same machine meet, to hand each other bytes in shared memory "
        "instead of over TCP. Not set: they don't.",
    )

    rdma: Literal["auto", "required", "off"] = Field(
        default="auto",
        description="Whether bodies go between services by RDMA, per connection, where both ends have it, else "
        "by TCP. auto: if this installation was built with RDMA and there is a device that works; required: a service "
        "that has none does not start, and says what is missing; off: no device is opened. `swiftlet rdma check` tells "
        "what there is. Each process with RDMA keeps native_pool_bytes locked in memory.",
    )

    encryption: Literal["none", "accepted", "required"] = Field(
        default="none",
        description="Whether what services say to each other is encrypted (TLS 1.3, both sides show certificates that "
        "follow from the cluster key): object bytes, names, metadata, rows and listings. none: nobody encrypts, though "
        "servers take connections that do; accepted: all encrypt what they ask, and servers still take both; required: "
        "servers refuse peers that don't. Go from none to required by accepted, and each time restart all services, so "
        "that no request is refused. Does not encrypt what clients ask of the API (proxy.tls_cert_file), Redis "
        "(redis.url), and the pages that anybody may read (/healthz, /readyz, /metrics, /statusz, /rings). Memory that "
        "services on one machine share stays as it is. Nothing goes by RDMA unless it is none.",
    )

    peer_silence_s: float = Field(
        default=1.5,
        ge=1.0,
        le=60.0,
        description="Seconds for which a peer of the native transport may be silent, or an RDMA read from it make no "
        "progress, before its connection and the requests on it are given up. The default finds a dead machine within "
        "2 s; longer is for machines that stand still by themselves, such as overcommitted virtual ones.",
    )

    @model_validator(mode="after")
    def _rdma_goes_natively(self) -> ClusterSection:
        if self.rdma == "required" and self.object_transport == "http":
            raise ValueError("rdma: required needs object_transport auto or native: over HTTP nothing goes by RDMA")
        return self

    @model_validator(mode="after")
    def _rdma_is_not_encrypted(self) -> ClusterSection:
        if self.rdma == "required" and self.encryption != "none":
            raise ValueError("rdma: required and encryption exclude each other: nothing encrypts what goes by RDMA")
        return self

    @property
    def rdma_mode(self) -> Literal["auto", "required", "off"]:
        """Whether RDMA is tried: not where everything has to be encrypted."""
        return self.rdma if self.encryption == "none" else "off"

    @model_validator(mode="after")
    def _secrets_are_given(self) -> ClusterSection:
        suffix = bool(self.hash_path_suffix.get_secret_value())
        if suffix and self.hash_path_suffix_file is not None:
            raise ValueError("set hash_path_suffix or hash_path_suffix_file, not both")
        if not (self.hash_path_prefix.get_secret_value() or suffix or self.hash_path_suffix_file):
            raise ValueError("set hash_path_suffix (or hash_path_prefix) to a random text, the same on all nodes")
        if (self.key is None) == (self.key_file is None):
            raise ValueError("set exactly one of key and key_file")
        if self.key is not None and len(self.key.get_secret_value().encode()) < MIN_KEY_BYTES:
            raise ValueError(f"key is shorter than {MIN_KEY_BYTES} bytes")
        return self

    @cached_property
    def hash_path(self) -> HashPath:
        """Places names with this cluster's secrets; SettingsError when the suffix's file can't serve.

        Read once: a suffix that changed while a service runs would hide all data from it.
        """
        return HashPath(self.hash_path_prefix.get_secret_value().encode(), self._suffix)

    @property
    def suffix_id(self) -> str:
        """The fingerprint of the hash suffix, as its file has it now; SettingsError when that can't serve."""
        return suffix_id(self._suffix)

    @property
    def _suffix(self) -> bytes:
        if self.hash_path_suffix_file is not None:
            return read_suffix_file(self.hash_path_suffix_file)
        return self.hash_path_suffix.get_secret_value().encode()

    def read_keys(self) -> tuple[bytes, ...]:
        """The cluster's secrets, from `key` or `key_file`, the signing one first; SettingsError if they can't serve."""
        if self.key is not None:
            return (self.key.get_secret_value().encode(),)
        assert self.key_file is not None, "the validator demands one of both"
        return read_key_file(self.key_file)


class PolicySection(Section):
    """One storage policy: an object ring and the name clients choose it by."""

    index: int = Field(
        ge=0,
        le=255,
        description="Number of the policy, fixed for its life: it is stored with every object and container, and "
        "names the ring file object-<index>.ring.",
    )
    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$",
        description="Name in X-Storage-Policy and /info. Letters, digits and '-'; compared without regard to case.",
    )
    default: bool = Field(
        default=False, description="Whether containers created without X-Storage-Policy get this policy."
    )
    deprecated: bool = Field(
        default=False,
        description="Whether no new containers get this policy, and /info leaves it out; those that have it go on.",
    )


class LimitsSection(Section):
    """Limits that the API enforces and publishes in /info; the defaults are those of OpenStack Swift."""

    max_file_size: int = Field(
        default=5_368_709_122,
        ge=1,
        le=1 << 62,
        description="Largest single object in bytes; larger ones go in segments.",
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
        default=10_000, ge=1, description="Most rows in one page of a container's listing."
    )
    account_listing_limit: int = Field(
        default=10_000, ge=1, description="Most rows in one page of an account's listing."
    )
    slo_max_manifest_segments: int = Field(
        default=1000, ge=1, le=100_000, description="Objects that one static large object's manifest may name."
    )
    slo_max_inline_segments: int = Field(
        default=2000,
        ge=0,
        le=200_000,
        description="Segments of one static large object's manifest that hold their bytes themselves (`data`). "
        "Neighbours can be put together, so twice the objects is plenty.",
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
        description="Segments of one manifest looked at, or deleted, at a time. More answers sooner and loads more.",
    )
    slo_yield_frequency_s: Seconds = Field(
        default=10.0,
        description="Seconds between white space sent to a client that waits for a manifest to be checked or deleted, "
        "so that nothing in between takes the connection for dead.",
    )


class AuthSection(Section):
    """Who may use the API."""

    users_file: Path = Field(
        default=Path("/etc/swiftlet/users.yaml"),
        description="YAML list of users: account, user, roles (admin, user, reader, reseller_admin) and secret_hash "
        "(argon2id). Read again when it changes.",
    )
    users_check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between looks at users_file; a changed user takes effect within this time."
    )
    revocations_check_interval_s: Seconds = Field(
        default=5.0,
        description="Seconds between looks at the tokens that other processes have revoked; the process that is asked "
        "to revoke one refuses it at once. A look is one page of a listing.",
    )
    token_life_s: int = Field(
        default=86_400,
        ge=60,
        le=31 * 86_400,
        description="Seconds that a token is valid. A day, as in OpenStack Swift.",
    )
    max_failures: int = Field(
        default=10,
        ge=1,
        description="Failed logins of one user at one address within failure_window_s after which more are refused "
        "(429); all users at one address together may fail 20 times as often. Each process counts its own. Enough for "
        "typing errors, too few for guessing.",
    )
    failure_window_s: Seconds = Field(default=60.0, description="Seconds over which failed logins are counted.")
    trusted_proxies: list[str] = Field(
        default=[],
        description="Networks (CIDR) of load balancers whose X-Forwarded-For says which address a login comes from. Of "
        "anybody else's header nothing is believed.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        for text in value:
            ipaddress.ip_network(text)
        return value

    @property
    def trusted_networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """The networks of `trusted_proxies`."""
        return [ipaddress.ip_network(text) for text in self.trusted_proxies]


class QuotaSection(Section):
    """The limits of accounts and containers."""

    file: Path | None = Field(
        default=None,
        description="YAML file with levels of limits and which account has which; docs/guide/configure.md shows one. "
        "Read again when it changes. Not set: no limits.",
    )
    check_interval_s: Seconds = Field(
        default=5.0, description="Seconds between looks at file; changed limits take effect within this time."
    )


class NodeTimeouts(Section):
    """How long a service waits for another."""

    connect_timeout_s: Seconds = Field(
        default=0.5,
        description="Seconds to connect to a storage node. Nodes are in the same network: one that takes longer is "
        "down or overloaded, and another replica is asked.",
    )
    answer_timeout_s: Seconds = Field(
        default=10.0, description="Seconds to wait for a storage node's answer, or for the next piece of it."
    )


class ProxySection(NodeTimeouts):
    """The Swift API server."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=8080, description="TCP port of the API.")
    management_port: Port = Field(
        default=8081,
        description="TCP port of `/metrics` and `/statusz`, always in plain HTTP. They name servers, keys and rates, "
        "so let only those who run the store reach it.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Processes that share the port. One per core the proxy may use; 1 starts no extra process.",
    )
    client_timeout_s: Seconds = Field(
        default=60.0, description="Seconds to wait for the next bytes from a client, or for it to take some."
    )
    small_object_bytes: int = Field(
        default=MIB,
        ge=0,
        le=64 * MIB,
        description="Objects up to this many bytes are buffered and stored in one round trip per replica; larger "
        "ones are streamed. Each such upload in flight holds this much memory at most.",
    )
    post_quorum_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=0.5,
        description="Seconds to wait for the remaining replicas once a quorum has answered. Lets slow replicas "
        "finish so that the replicator need not bring them the object.",
    )
    row_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=2.0,
        description="Seconds that a write waits for its row in the container's listing, so that a client sees what it "
        "just wrote. After that the object servers bring it; this is for rows that they leave to the proxy.",
    )
    container_info_ttl_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Seconds that a worker remembers a container's policy and existence. ACLs, keys and quotas are "
        "asked for once a second while they are used, and remembered this long only while nobody can be asked; 0 asks "
        "for every request.",
    )
    hot_path: bool = Field(
        default=True,
        description="Answer GET and HEAD of small plain objects in a native thread, by what Python decided a moment "
        "ago; all other requests as always. With TLS, and with object servers that are spoken to over HTTP, Python "
        "answers everything; `hot_path` at /statusz says so. false: Python accepts connections itself.",
    )
    hot_put: bool = Field(
        default=True,
        description="With hot_path: also store objects of up to 64 KiB in that thread, where no quota, version or rate "
        "limit has a say, and answer when all replicas are durable and the row is listed as always.",
    )
    storage_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#\s]+(/[^?#\s]*)?$",
        description="Base URL of the API as clients reach it, such as https://objects.example.org; stands in "
        "X-Storage-Url. Not set: taken from the request's Host header.",
    )
    tls_cert_file: Path | None = Field(
        default=None,
        description="PEM file with the certificate of the API and its chain: the port then speaks HTTPS (TLS 1.2 or "
        "later) and nothing else. Needs tls_key_file. Read again when it changes; open connections keep the old one. "
        "Not set: plain HTTP.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="PEM file with the certificate's key, without a password; see tls_cert_file."
    )
    tls_check_interval_s: Seconds = Field(default=5.0, description="Seconds between looks at the certificate's files.")
    backlog: int = Field(
        default=1024,
        ge=1,
        le=65_535,
        description="Connections that may wait per worker to be accepted; the kernel caps it at net.core.somaxconn.",
    )
    idle_drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Of drain_s: seconds after SIGTERM for which connections stay open on which nothing is asked, so "
        "that the next request on each is answered, and its client told to ask elsewhere. Without such connections "
        "the process does not wait. 0 closes them at once.",
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> ProxySection:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("set both of tls_cert_file and tls_key_file, or none")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> ProxySection:
        _must_differ(self.port, self.management_port)
        return self


class ObjectSection(NodeTimeouts):
    """The object server: the devices of one pod or node."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=6200, description="TCP port; part of the devices' addresses in the ring.")
    devices_dir: Path = Field(
        default=Path("/srv/swiftlet"), description="Directory below which each device is mounted under its name."
    )
    devices: tuple[DeviceName, ...] = Field(
        min_length=1, description="Names of the devices served, as in the ring. One process owns a device."
    )
    ring_host: Host | None = Field(
        default=None,
        description="Host of this server as it stands in the rings: who comes over the native transport says whom it "
        "means. Not set: the address to listen on if that is not all addresses, otherwise this machine's host name.",
    )
    store: Literal["native", "plain"] = Field(
        default="native",
        description="How objects lie on the devices: native packs small ones into volumes and commits those of many "
        "clients at once; plain keeps a file per version, which people can look at. A device stays with the kind that "
        "first wrote it: to change it, begin with an empty device and let replication fill it.",
    )
    compact_bytes_per_s: int = Field(
        default=50 * MIB,
        ge=0,
        description="Bytes per second and device that the native store copies to get back the room of what was "
        "deleted; 0 for as many as the device takes.",
    )
    audit_bytes_per_s: int = Field(
        default=10 * MIB,
        ge=0,
        description="Bytes per second and device that the native store reads to find damage before a client does; 0 "
        "for none. At 10 MiB a device of 4 TB is read in five days.",
    )
    reserve_bytes: int = Field(
        default=0,
        ge=0,
        description="Bytes kept free on each device; writes are refused (507) below. The larger of this and "
        "reserve_percent counts.",
    )
    reserve_percent: Annotated[float, Field(ge=0, lt=100)] = Field(
        default=1.0,
        description="Per cent of each device kept free: deletes, compaction and repair need room on a full device.",
    )
    threads_per_device: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Threads that work on one device. A slow device blocks its own threads only; more helps fast "
        "devices with deep queues.",
    )
    max_requests_per_device: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Requests at work on one device at a time; more are turned away (503) so that another replica is "
        "asked instead of waiting in line at a slow one.",
    )
    require_mount: bool = Field(
        default=False,
        description="Whether a device's directory must be a mount point; keeps data off the root file system when a "
        "device is not mounted.",
    )
    row_wait_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=2.0,
        description="Seconds that a write waits for its row in the container's listing, so that a client sees what it "
        "just wrote. After that the row follows from the outbox.",
    )
    outbox_interval_s: Seconds = Field(
        default=5.0, description="Seconds between deliveries of rows that a container server could not take at once."
    )


class ContainerSection(NodeTimeouts):
    """The account and container server: the databases on one pod or node."""

    host: Host = Field(default=ALL_INTERFACES, description="Address to listen on; '::' for all, IPv6 included.")
    port: Port = Field(default=6300, description="TCP port; part of the devices' addresses in the ring.")
    devices_dir: Path = Field(
        default=Path("/srv/swiftlet"), description="Directory below which each device is mounted under its name."
    )
    devices: tuple[DeviceName, ...] = Field(
        min_length=1, description="Names of the devices served, as in the ring. One process owns a device."
    )
    threads_per_device: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Threads that work on one device's databases; SQLite blocks while it syncs.",
    )
    ring_host: Host | None = Field(
        default=None,
        description="Host of this server as it stands in the rings, so that it knows its own devices there. Not set: "
        "the address to listen on if that is not all addresses, otherwise any name that begins with this machine's "
        "host name, as the pods of a StatefulSet have it.",
    )
    reserve_bytes: int = Field(
        default=64 * MIB, ge=0, description="Bytes kept free on each device; databases do not grow below."
    )
    open_databases: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="Databases kept open per device; each costs a few descriptors and some memory.",
    )
    account_update_interval_s: Seconds = Field(
        default=1.0, description="Seconds between reports of changed container totals to their accounts."
    )
    recount_interval_s: float = Field(
        default=7 * 86_400.0,
        ge=0.0,
        description="Seconds between two passes that count the rows of all databases and put right totals that differ; "
        "0 for none.",
    )
    usage_interval_s: Seconds = Field(
        default=60.0,
        description="Seconds between walks over the account databases that find out which accounts hold most, for the "
        "status of StorageQuota and StorageUser objects; how often that is written says the StorageQuota's "
        "usageSeconds.",
    )
    deprecated_policy_grace_s: Seconds = Field(
        default=300.0,
        description="Seconds after which containers of a policy that was deprecated are refused here as well as by the "
        "proxies, which hear of it later than this server or earlier.",
    )
    shard_above_rows: int = Field(
        default=1_000_000,
        ge=0,
        le=1_000_000_000,
        description="Objects in one container's database beyond which it is split into ranges of names, each in a "
        "database of its own on other devices; the same on all container servers. 0: containers are never split, and "
        "those that were split stay so. Nothing is split while one of its holders is away.",
    )
    shard_takeover_s: Seconds = Field(
        default=60.0,
        description="Seconds after which another holder of a container splits it if the one before it has not.",
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
        default=10.0, description="Seconds that a worker remembers a container's policy; 0 asks for every request."
    )
    idle_drain_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=10.0,
        description="Of drain_s: seconds after SIGTERM for which connections stay open on which nothing is asked, so "
        "that the next request on each is answered, and its client told to ask elsewhere. Without such connections "
        "the process does not wait. 0 closes them at once.",
    )

    @model_validator(mode="after")
    def _ports_differ(self) -> MetadataSection:
        _must_differ(self.port, self.management_port)
        return self


def _must_differ(port: int, management_port: int) -> None:
    if port == management_port:
        raise ValueError(f"port and management_port are both {port}; give them different ports")


DeviceAddress = Annotated[str, Field(pattern=r"^[^\s/]+:[0-9]{1,5}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""host:port/device."""


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
        description="Instead of devices: those of container servers, whose account and container databases this "
        "replicator compares; one process does either the one or the other. Each device of a container server has to "
        "be named by some replicator: container servers do not compare by themselves.",
    )
    interval_s: Seconds = Field(
        default=10.0,
        description="Seconds between the starts of two rounds; a round that takes longer is followed at once.",
    )
    database_interval_s: Seconds = Field(
        default=5.0,
        description="The same of rounds over databases: how long a listing may lack what only another replica has.",
    )
    listing_audit_interval_s: float = Field(
        default=3600.0,
        ge=0.0,
        description="Seconds between two passes of the listing audit, which compares containers' rows with objects in "
        "both directions and puts right what differs; 0 for none. Databases that have not changed are looked at once "
        "a week.",
    )
    listing_audit_rows_per_s: float = Field(
        default=100.0,
        ge=0.0,
        description="Rows, or objects, that the listing audit looks at in a second at most; 0 for no limit.",
    )
    listing_audit_share: float = Field(
        default=0.1,
        gt=0.0,
        le=1.0,
        description="The largest share of its time in which the listing audit works or waits for answers, so that it "
        "goes slower when servers are busy; 1 for no limit.",
    )
    listing_audit_settle_s: float = Field(
        default=60.0,
        ge=0.0,
        description="Seconds for which the listing audit leaves alone what was written: its row may still be on its "
        "way. Shorter than owed rows and rounds need, it counts as wrong what is only late.",
    )
    concurrency: int = Field(
        default=4,
        ge=1,
        le=256,
        description="Partitions compared at a time. More finds differences sooner and loads disks more.",
    )
    mode: Literal["batched", "lightsync", "all_to_all", "star", "chain"] = Field(
        default="batched",
        description="How rounds compare. batched: each peer is asked once about all partitions shared with it, and "
        "both sides are brought into agreement. The others are there to be measured against it, and only push: "
        "lightsync (a root at a time to the next replica), all_to_all (all suffix hashes to all), star, chain. In a "
        "mode that does not ask all other replicas a device never reports to be in sync, which the operator waits for.",
    )

    @model_validator(mode="after")
    def _one_kind_of_devices(self) -> Self:
        if bool(self.devices) == bool(self.databases):
            raise ValueError("set either devices (of object servers) or databases (devices of container servers)")
        return self


class LogSection(Section):
    """What is logged, and how it is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is written; the access log is at info."
    )
    format: Literal["json", "console"] = Field(
        default="json", description="json: one object a line, for machines. console: aligned text, for eyes."
    )
