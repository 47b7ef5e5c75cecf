"""Settings: defaults, files, environment, and what operators read when something is wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml

from swiftlet.errors import SettingsError
from swiftlet.names import HashPath
from swiftlet.ring.model import Coding
from swiftlet.settings import (
    SERVICES,
    ContainerSettings,
    MetadataSettings,
    ObjectSettings,
    ProxySettings,
    ReplicatorSettings,
    ServiceSettings,
    load_settings,
    render_reference,
)
from swiftlet.settings.policies import Policies
from swiftlet.settings.secret import MAX_KEYS, key_id, parse_keys
from swiftlet.settings.sections import CodingSection, PolicySection

KEY = "0123456789abcdef0123456789abcdef"
CLUSTER = {"hash_path_suffix": "end", "key": KEY}


def write(tmp_path: Path, **sections: object) -> Path:
    path = tmp_path / "swiftlet.yaml"
    path.write_text(yaml.safe_dump({"cluster": CLUSTER, **sections}))
    return path


def refusal(model: type[ServiceSettings], path: Path | None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(model, path, environ or {})
    return str(caught.value)


def test_defaults_fill_what_the_file_leaves_out(tmp_path: Path) -> None:
    settings = load_settings(ProxySettings, write(tmp_path), {})
    assert settings.proxy.port == 8080
    assert settings.limits.max_file_size == 5_368_709_122
    assert settings.load_policies().default.name == "Policy-0"
    assert settings.cluster.hash_path == HashPath(b"", b"end")
    assert settings.cluster.read_keys() == (KEY.encode(),)


def test_environment_overlays_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, object={"devices": ["a"], "port": 7000}, drain_s=3)
    environ = {
        "SWIFTLET_CONFIG": str(path),
        "SWIFTLET_OBJECT__PORT": "7001",
        "SWIFTLET_OBJECT__DEVICES": "[sda, sdb]",
        "SWIFTLET_DRAIN_S": "7",
        "SWIFTLET_PROXY_SERVICE_HOST": "10.0.0.1",
    }
    settings = load_settings(ObjectSettings, None, environ)
    assert settings.object.port == 7001
    assert settings.object.devices == ("sda", "sdb")
    assert settings.drain_s == 7


def test_a_pod_gets_its_own_values_and_the_secrets_by_environment(tmp_path: Path) -> None:
    key_file = tmp_path / "cluster-key"
    key_file.write_text(KEY + "\n")
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({"cluster": {"name": "swiftlet", "key_file": str(key_file)}}))
    environ = {
        "SWIFTLET_CONFIG": str(path),
        "SWIFTLET_CLUSTER__HASH_PATH_SUFFIX": "0123456789",
        "SWIFTLET_OBJECT__DEVICES": "[d0, d1]",
        "SWIFTLET_CONTAINER__DEVICES": "[db]",
        "SWIFTLET_CONTAINER__RING_HOST": "x-container-a-0.x-container.default.svc",
        "SWIFTLET_REPLICATOR__DEVICES": "[x-fast-a-0.x-storage.default.svc:6200/d0, "
        "x-fast-a-0.x-storage.default.svc:6200/d1]",
        # What Kubernetes itself sets for a Service `swiftlet`.
        "SWIFTLET_SERVICE_HOST": "10.0.0.1",
        "SWIFTLET_PORT": "tcp://10.0.0.1:80",
        "SWIFTLET_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    settings = load_settings(ObjectSettings, None, environ)
    assert settings.object.devices == ("d0", "d1")
    assert settings.cluster.hash_path == HashPath(b"", b"0123456789")
    assert settings.cluster.read_keys() == (KEY.encode(),)
    assert (
        load_settings(ContainerSettings, None, environ).container.ring_host == "x-container-a-0.x-container.default.svc"
    )
    assert load_settings(ReplicatorSettings, None, environ).replicator.devices == (
        "x-fast-a-0.x-storage.default.svc:6200/d0",
        "x-fast-a-0.x-storage.default.svc:6200/d1",
    )


def test_one_file_serves_all_services(tmp_path: Path) -> None:
    path = write(tmp_path, object={"devices": ["a"]}, container={"devices": ["b"]}, proxy={"port": 1234})
    assert load_settings(ProxySettings, path, {"SWIFTLET_OBJECT__PORT": "1"}).proxy.port == 1234
    assert load_settings(ContainerSettings, path, {}).container.devices == ("b",)


def test_unknown_names_are_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    path = write(tmp_path, proxy={"prot": 1}, proxi={})
    message = refusal(ProxySettings, path, {"SWIFTLET_PROXY__WORKER": "2", "SWIFTLET_LIMIT__X": "1"})
    assert f"proxy.prot: unknown setting in {path}; did you mean 'proxy.port'?" in message
    assert "proxi: unknown setting" in message
    assert "did you mean 'proxy'?" in message
    assert "did you mean 'SWIFTLET_PROXY__WORKERS'?" in message
    assert "did you mean 'SWIFTLET_LIMITS'?" in message


def test_all_problems_come_in_one_message(tmp_path: Path) -> None:
    path = write(tmp_path, proxy={"port": 99999, "workers": "many"}, log={"level": "loud"})
    message = refusal(ProxySettings, path, {"SWIFTLET_PROXY__BACKLOG": "-1"})
    assert f"proxy.port: 99999 in {path}: input should be less than or equal to 65535" in message
    assert "proxy.workers: 'many'" in message
    assert "'debug', 'info', 'warning' or 'error'" in message
    assert "proxy.backlog: '-1' in SWIFTLET_PROXY__BACKLOG" in message
    assert "4 problems" in message


@pytest.mark.parametrize(("settings", "section"), [(ProxySettings, "proxy"), (MetadataSettings, "metadata")])
def test_clients_and_operators_have_ports_of_their_own(
    tmp_path: Path, settings: type[ServiceSettings], section: str
) -> None:
    message = refusal(settings, write(tmp_path, **{section: {"port": 9000, "management_port": 9000}}))
    assert "port and management_port are both 9000; give them different ports" in message


def test_missing_values_say_what_is_missing(tmp_path: Path) -> None:
    message = refusal(ObjectSettings, write(tmp_path, object={}))
    assert "object.devices: missing" in message
    assert "Names of the served devices" in message
    assert "cluster: missing in defaults" in refusal(ProxySettings, None)


@pytest.mark.parametrize(
    ("policies", "says"),
    [
        ([{"index": 0, "name": "gold"}], "exactly one policy must have default: true; now it is none"),
        ([{"index": 0, "name": "a", "default": True}, {"index": 0, "name": "b"}], "index 0 is given to more than one"),
        ([{"index": 0, "name": "a", "default": True}, {"index": 1, "name": "A"}], "name a is given to more than one"),
        ([{"index": 0, "name": "a b", "default": True}], "policies[0].name: 'a b'"),
        ([{"index": 0, "nam": "a", "default": True}], "did you mean 'policies[0].name'?"),
        ([], "policies: []"),
    ],
)
def test_policies_are_checked(tmp_path: Path, policies: list[object], says: str) -> None:
    assert says in refusal(ProxySettings, write(tmp_path, policies=policies))


def test_policies_come_from_one_place(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text("[{index: 3, name: gold, default: true}]")
    cluster = {"hash_path_suffix": "end", "key": KEY, "policies_file": str(tmp_path / "policies.yaml")}
    settings = load_settings(ProxySettings, write(tmp_path, cluster=cluster), {})
    assert settings.load_policies().default.index == 3
    both = write(tmp_path, cluster=cluster, policies=[{"index": 0, "name": "gold", "default": True}])
    assert "set either policies or cluster.policies_file, not both" in refusal(ProxySettings, both)
    (tmp_path / "policies.yaml").write_text("[{index: 3, name: gold}]")
    with pytest.raises(SettingsError, match="exactly one policy must have default: true"):
        settings.load_policies()


@pytest.mark.parametrize(
    ("coding", "more", "says"),
    [
        ({"data": 1, "parity": 2}, {}, "policies[0].coding.data"),
        ({"data": 4, "parity": 9}, {}, "policies[0].coding.parity"),
        ({"data": 4, "parity": 2, "cell_bytes": 100}, {}, "policies[0].coding.cell_bytes"),
        ({"data": 4, "parity": 2}, {"write_quorum": "local"}, "remove one of the two"),
        ({"data": 4, "parity": 2}, {"pack_below": (1 << 20) + 1}, "policies[0].pack_below"),
        (None, {"pack_below": 1}, "set coding too, or remove pack_below"),
    ],
)
def test_codings_are_checked(tmp_path: Path, coding: dict[str, int] | None, more: dict[str, object], says: str) -> None:
    policies = [{"index": 0, "name": "gold", "default": True, "coding": coding, **more}]
    assert says in refusal(ProxySettings, write(tmp_path, policies=policies))


def test_the_coding_of_a_known_policy_does_not_change() -> None:
    plain = PolicySection(index=0, name="gold", default=True)
    coded = PolicySection(index=1, name="coded", coding=CodingSection(data=4, parity=2))
    policies = Policies([plain, coded])
    assert policies.coding(1) == Coding(4, 2, 65536)
    assert policies.coding(0) is policies.coding(7) is None
    assert policies.of_copies == [0]
    wider = coded.model_copy(update={"coding": CodingSection(data=6, parity=2)})
    for changed in ([plain, wider], [plain.model_copy(update={"coding": coded.coding}), coded]):
        with pytest.raises(SettingsError, match=r"coding of policy .* has changed"):
            policies.take(changed, lambda index: True)
    assert policies.coding(1) == Coding(4, 2, 65536)
    # Which objects are small may change at any time.
    assert policies.pack_below(1) == policies.pack_below(7) == 0
    assert policies.take([plain, coded.model_copy(update={"pack_below": 4096})], lambda index: True)
    assert policies.pack_below(1) == 4096


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("cluster: {hash_path_suffix: 12345678, key: tooshort}")
    message = refusal(ProxySettings, path)
    assert "12345678" not in message
    assert "tooshort" not in message
    assert KEY not in repr(load_settings(ProxySettings, write(tmp_path), {}))


def test_exactly_one_key_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("cluster: {hash_path_suffix: x}")
    assert "set exactly one of key and key_file" in refusal(ProxySettings, path)
    assert "openssl" not in refusal(ProxySettings, path, {"SWIFTLET_CLUSTER__KEY": "short"})
    assert "shorter than 16 bytes" in refusal(ProxySettings, path, {"SWIFTLET_CLUSTER__KEY": "short"})


def test_key_file(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    environ = {"SWIFTLET_CLUSTER__HASH_PATH_SUFFIX": "x", "SWIFTLET_CLUSTER__KEY_FILE": str(key_file)}
    cluster = load_settings(ProxySettings, None, environ).cluster
    with pytest.raises(SettingsError, match="No such file"):
        cluster.read_keys()
    key_file.write_text("short\n")
    with pytest.raises(SettingsError, match="at least 16"):
        cluster.read_keys()
    key_file.write_text(KEY + "\n")
    assert cluster.read_keys() == (KEY.encode(),)


def test_the_suffix_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "suffix"
    cluster = load_settings(
        ProxySettings, write(tmp_path, cluster={"hash_path_suffix_file": str(file), "key": KEY}), {}
    ).cluster
    inline = load_settings(
        ProxySettings, write(tmp_path, cluster={"hash_path_suffix": "0123456789", "key": KEY}), {}
    ).cluster
    for content, says in (
        (None, "No such file"),
        (b" \n", "is empty"),
        (b"two\nlines", "more than one line"),
        (b"x" * 5000, "larger than"),
    ):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SettingsError, match=says) as refused:
            _ = cluster.hash_path
        assert "two" not in str(refused.value)
    file.write_bytes(b"0123456789\n")
    assert cluster.hash_path("AUTH_a", "c", "o") == inline.hash_path("AUTH_a", "c", "o")

    file.write_bytes(b"another")
    assert cluster.hash_path("AUTH_a", "c", "o") == inline.hash_path("AUTH_a", "c", "o"), "read once"


def test_the_suffix_comes_from_one_place(tmp_path: Path) -> None:
    both = write(tmp_path, cluster={"hash_path_suffix_file": "/x", "hash_path_suffix": "end", "key": KEY})
    assert "set either hash_path_suffix or hash_path_suffix_file, not both" in refusal(ProxySettings, both)
    neither = write(tmp_path, cluster={"key": KEY})
    assert "set hash_path_suffix (or hash_path_prefix)" in refusal(ProxySettings, neither)


def test_several_keys_stand_on_lines_of_their_own() -> None:
    old, new = KEY.encode(), b"another key of enough bytes"

    assert parse_keys(b"\n  " + new + b" \r\n\n" + old + b"\n" + new, "f") == (new, old)
    for content, says in (
        (b" \n\n", "holds no key"),
        (new + b"\nshort\n", "key 2 holds 5 bytes"),
        (b"\n".join(b"%020d" % n for n in range(MAX_KEYS + 1)), "9 keys, at most 8"),
    ):
        with pytest.raises(SettingsError, match=says):
            parse_keys(content, "f")


def test_a_keys_id_is_what_the_format_says() -> None:
    assert key_id(b"k" * 16) == hashlib.sha256(b"swiftlet key id" + b"k" * 16).hexdigest()[:8]


@pytest.mark.parametrize(
    ("content", "says"),
    [("a: [", "not valid YAML"), ("- a", "must hold a mapping"), ("cluster: 5", "cluster: 5"), ("\x00", "not valid")],
)
def test_broken_files(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(content)
    assert says in refusal(ProxySettings, path)


def test_absent_file() -> None:
    assert "can't read the settings file /nowhere.yaml: No such file" in refusal(ProxySettings, Path("/nowhere.yaml"))


@pytest.mark.parametrize("service", SERVICES)
def test_the_reference_loads_back_to_the_defaults(service: str, tmp_path: Path) -> None:
    model = SERVICES[service]
    document = yaml.safe_load(render_reference(model))
    document["cluster"].update(CLUSTER)
    minimal: dict[str, dict[str, object]] = {
        "object": {"devices": ["a"]},
        "container": {"devices": ["a"]},
        "replicator": {"devices": ["h:1/a"]},
    }
    for section, required in minimal.items():
        if section in model.model_fields:
            document[section].update(required)
    path = tmp_path / "reference.yaml"
    path.write_text(yaml.safe_dump(document))
    needed = {key: value for key, value in minimal.items() if key in model.model_fields}
    assert load_settings(model, path, {}) == load_settings(model, write(tmp_path, **needed), {})


@pytest.mark.parametrize("service", SERVICES)
def test_every_field_is_described(service: str) -> None:
    for name, section in SERVICES[service].model_fields.items():
        assert section.description, name
    assert "#   " not in render_reference(SERVICES[service])
