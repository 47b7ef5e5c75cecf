"""The local store's plan and files, without running it."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from swiftlet.auth.users import Users
from swiftlet.errors import SettingsError, Unauthorized
from swiftlet.main.commands.standalone.command import banner
from swiftlet.main.commands.standalone.lock import running_here, stop_running
from swiftlet.main.commands.standalone.plan import Layout, Options, Plan, Secrets, make_plan, plan_policies
from swiftlet.main.commands.standalone.prepare import (
    known_policies,
    load_or_make_secrets,
    make_directories,
    write_policies,
    write_settings,
    write_users,
)
from swiftlet.main.commands.standalone.rings import write_rings
from swiftlet.ring.codec import load
from swiftlet.settings import SERVICES, load_settings

SECRETS = Secrets("suffix", "k" * 32, "test:tester", "the key")


def all_free(_port: int) -> bool:
    return True


def plan_for(data: Path, is_free: Callable[[int], bool] = all_free, **options: object) -> Plan:
    return make_plan(replace(Options(data), **options), SECRETS, is_free)  # type: ignore[arg-type]


def test_everything_gets_a_port_of_its_own(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, port=6203)
    ports = [service.port for service in plan.services]
    assert len(set(ports)) == len(ports) == 11
    assert [service.name for service in plan.services] == [
        "object-1",
        "object-2",
        "object-3",
        "object-4",
        "container-1",
        "container-2",
        "container-3",
        "replicator",
        "metadata",
        "database-replicator",
        "proxy",
    ]
    assert ports[-1] == 6203
    assert ports[:4] == [6200, 6201, 6202, 6204]


def test_taken_ports_are_passed_over(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, is_free=lambda port: port % 2 == 1)
    assert [device.port for device in plan.object_devices] == [6201, 6203, 6205, 6207]
    with pytest.raises(SettingsError, match="--base-port"):
        plan_for(tmp_path, is_free=lambda _: False)


def test_native_ports_are_free_too(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, is_free=lambda port: port not in (7201, 7203), port=7200)
    assert [device.port for device in plan.object_devices] == [6202, 6204, 6205, 6206]
    with pytest.raises(SettingsError, match="--base-port"):
        plan_for(tmp_path, base_port=65_000)


def test_where_processes_share_memory_is_told_to_all() -> None:
    cluster = [service.settings["cluster"] for service in plan_for(Path("/data")).services]
    assert {one["native_socket_directory"] for one in cluster} == {"/data/run"}
    far = plan_for(Path("/" + "far" * 30)).services
    assert not any("native_socket_directory" in service.settings["cluster"] for service in far)


def test_every_service_can_read_its_settings(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "var")
    make_directories(layout)
    options = Options(layout.data, port=8123, workers=3)
    plan = make_plan(options, load_or_make_secrets(layout, options), all_free)
    write_settings(plan)
    for service in plan.services:
        settings = load_settings(SERVICES[service.kind], service.config, {})
        assert settings.cluster.rings == layout.rings
        assert settings.cluster.read_keys()
        assert getattr(settings, service.kind).port == service.port
        assert (layout.devices / "d1").is_dir()
    assert plan.endpoint == "http://127.0.0.1:8123"


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    first = load_or_make_secrets(layout, Options(tmp_path))
    assert first.user == "test:tester"
    assert load_or_make_secrets(layout, Options(tmp_path)) == first
    for path in (layout.secrets, layout.key_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.key not in repr(first)
    changed = load_or_make_secrets(layout, Options(tmp_path, user="a:b", key="mine"))
    assert (changed.user, changed.key) == ("a:b", "mine")
    assert changed.hash_path_suffix == first.hash_path_suffix
    assert load_or_make_secrets(layout, Options(tmp_path)) == changed
    assert load_or_make_secrets(layout, Options(tmp_path, user="c:d")).key != "mine"


@pytest.mark.parametrize("user", ["", "nocolon", "a:", ":b", "a/b:c", "a:b:c"])
def test_impossible_users(tmp_path: Path, user: str) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    if user:
        with pytest.raises(SettingsError, match="ACCOUNT:USER"):
            load_or_make_secrets(layout, Options(tmp_path, user=user))


def test_data_without_its_secrets_is_not_touched(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    (layout.devices / "d1").mkdir()
    with pytest.raises(SettingsError, match="put the file back"):
        load_or_make_secrets(layout, Options(tmp_path))
    assert not layout.secrets.exists()


def test_the_users_file_keeps_other_users(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    write_users(layout, SECRETS)
    users = Users(layout.users)
    assert str(users.check("test:tester", "the key")) == "AUTH_test:tester"
    before = layout.users.read_text()
    write_users(layout, SECRETS)
    assert layout.users.read_text() == before
    write_users(layout, replace(SECRETS, user="other:one"))
    write_users(layout, replace(SECRETS, key="new"))
    entries = yaml.safe_load(layout.users.read_text())
    assert [entry["account"] for entry in entries] == ["test", "other"]
    users.reload()
    with pytest.raises(Unauthorized):
        users.check("test:tester", "the key")
    users.check("test:tester", "new")


def test_new_ports_move_no_data(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    write_rings(plan_for(tmp_path))
    names = ("account", "container", "object-0")
    before = {name: load(layout.rings / f"{name}.ring") for name in names}
    write_rings(plan_for(tmp_path))
    assert {name: load(layout.rings / f"{name}.ring") for name in names} == before
    plan = plan_for(tmp_path, base_port=7000)
    write_rings(plan)
    for name in names:
        after = load(layout.rings / f"{name}.ring")
        assert after.rows == before[name].rows
        assert after.version == before[name].version + 1
        assert all(device is not None and device.port >= 7000 for device in after.devices)
    assert len({device.zone for device in load(layout.rings / "object-0.ring").primaries(0)}) == 3


def test_the_banner_can_be_pasted(tmp_path: Path) -> None:
    text = banner(plan_for(tmp_path, host="0.0.0.0"), 1.23)
    assert "http://127.0.0.1:8080/auth/v1.0" in text
    assert "-U test:tester -K the key" in text
    assert f"--stop --data {tmp_path}" in text


def test_a_data_directory_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="choose another place with --data"):
        make_directories(Layout(tmp_path / "file" / "var"))


def test_one_store_per_directory(tmp_path: Path) -> None:
    lock = tmp_path / "swiftlet.pid"
    with pytest.raises(SettingsError, match="no store is running"):
        stop_running(lock, 1)
    with running_here(lock), pytest.raises(SettingsError, match="already running"), running_here(lock):
        pass
    with pytest.raises(SettingsError, match="no store is running"):
        stop_running(lock, 1)
    with running_here(lock):
        assert json.loads(lock.read_text()) > 0


def test_a_new_store_has_two_policies_with_a_ring_each(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    plan = plan_for(tmp_path)
    assert [(one.index, one.name) for one in plan.policies] == [(0, "Policy-0"), (1, "Policy-1")]
    write_policies(plan)
    assert known_policies(layout) == ["Policy-0", "Policy-1"]
    write_rings(plan)
    assert {path.name for path in layout.rings.glob("object-*.ring")} == {"object-0.ring", "object-1.ring"}
    for service in plan.services:
        assert [one.get("default", False) for one in service.settings["policies"]] == [True, False]


def test_policies_are_added_and_never_taken_away(tmp_path: Path) -> None:
    assert [one.name for one in plan_policies([], ["gold"])] == ["gold"]
    assert [one.name for one in plan_policies(["gold"], [])] == ["gold"]
    assert [one.index for one in plan_policies(["gold"], ["gold", "cold"])] == [0, 1]
    for known, wanted in (
        (["gold", "cold"], ["gold"]),
        (["gold", "cold"], ["cold", "gold"]),
        ([], ["gold", "GOLD"]),
        ([], ["no names"]),
        ([], [""]),
        ([], ["cold=1+2"]),
        ([], ["cold=4+9"]),
        ([], ["cold=4"]),
        (["cold=4+2"], ["cold"]),
        (["cold=4+2"], ["cold=6+3"]),
        (["cold"], ["cold=4+2"]),
    ):
        with pytest.raises(SettingsError, match="--policies"):
            plan_policies(known, wanted)


def test_a_policy_with_erasure_coding_is_added_to_a_store(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    make_directories(layout)
    write_rings(plan_for(tmp_path))
    grown = plan_for(tmp_path, policies=("Policy-0", "Policy-1", "cold=4+2"))
    assert [device.name for device in grown.object_devices] == ["d1", "d2", "d3", "d4", "d5", "d6", "d7"]
    write_policies(grown)
    assert plan_policies(known_policies(layout), []) == grown.policies
    write_rings(grown)
    assert [load(layout.rings / f"object-{index}.ring").replica_count for index in range(3)] == [3, 3, 6]
    coding = {"data": 4, "parity": 2, "cell_bytes": 65_536}
    for service in grown.services:
        assert [one.get("coding") for one in service.settings["policies"]] == [None, None, coding]
