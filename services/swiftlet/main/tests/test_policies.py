"""Storage policies that are added while a process runs: from when on, and what damage does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from swiftlet.main.policies import use_policies, use_policy_list
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet
from swiftlet.main.tests.test_rings import make_ring
from swiftlet.ring.codec import save
from swiftlet.settings import ProxySettings, load_settings
from swiftlet.web.app import create_base_app
from swiftlet.web.tests.conftest import eventually

GOLD = {"index": 0, "name": "gold", "default": True}
SILVER = {"index": 1, "name": "silver"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with a policies file and the rings of its one policy."""
    write(tmp_path, [GOLD])
    for name in ("account", "container", object_ring(0)):
        save(make_ring(), tmp_path / f"{name}.ring")
    return tmp_path


def write(directory: Path, policies: Any) -> None:
    (directory / "policies.new").write_text(yaml.safe_dump(policies))
    (directory / "policies.new").replace(directory / "policies.yaml")


def settings_in(directory: Path) -> ProxySettings:
    cluster = {
        "hash_path_suffix": "end",
        "key": "0123456789abcdef0123456789abcdef",
        "rings": str(directory),
        "ring_check_interval_s": 0.02,
        "policies_file": str(directory / "policies.yaml"),
    }
    path = directory / "settings.yaml"
    path.write_text(yaml.safe_dump({"cluster": cluster}))
    return load_settings(ProxySettings, path, {})


async def test_a_new_policy_counts_once_its_ring_is_there(files: Path) -> None:
    settings = settings_in(files)
    rings = RingSet.of(settings)
    app = create_base_app("proxy", trust_request_ids=False)
    policies = use_policies(app, settings, rings)
    app.freeze()
    await app.startup()
    try:
        assert [policy.name for policy in policies] == ["gold"]
        write(files, [GOLD, SILVER])
        await asyncio.to_thread(eventually, lambda: "object-1" in rings.versions())
        assert policies.named("Silver") is None
        assert rings.missing() is None, "a policy that is not usable yet makes nobody less ready"
        save(make_ring(), files / "object-1.ring")
        rings.refresh()
        await asyncio.to_thread(eventually, lambda: policies.named("Silver") is not None)
        assert policies.name_of(1) == "silver"
        assert policies.default.name == "gold"
    finally:
        await app.cleanup()


@pytest.mark.parametrize(
    "content", ["- {index: 0", "- {index: 0, name: gold}", "nothing", "- {index: 900, name: x, default: true}"]
)
async def test_a_damaged_file_leaves_the_last_good_policies(files: Path, content: str) -> None:
    settings = settings_in(files)
    rings = RingSet.of(settings)
    app = create_base_app("proxy", trust_request_ids=False)
    policies = use_policies(app, settings, rings)
    before = failures()
    app.freeze()
    await app.startup()
    try:
        (files / "policies.yaml").write_text(content)
        await asyncio.to_thread(eventually, lambda: failures() == before + 1)
        assert [policy.name for policy in policies] == ["gold"]
        write(files, [{**GOLD, "name": "golden"}])
        await asyncio.to_thread(eventually, lambda: policies.default.name == "golden")
        assert failures() == before + 1, "one problem is counted once"
    finally:
        await app.cleanup()


def failures() -> float:
    return REGISTRY.get_sample_value("swiftlet_policies_load_failures_total") or 0.0


async def test_the_ring_of_a_retired_policy_is_forgotten(files: Path) -> None:
    write(files, [GOLD, {**SILVER, "deprecated": True}])
    save(make_ring(), files / f"{object_ring(1)}.ring")
    settings = settings_in(files)
    cached = files / "cache" / "proxy" / f"{object_ring(1)}.ring"
    settings = settings.model_copy(
        update={"cluster": settings.cluster.model_copy(update={"ring_cache": files / "cache"})}
    )
    rings = RingSet.of(settings)
    app = create_base_app("proxy", trust_request_ids=False)
    policies = use_policies(app, settings, rings)
    app.freeze()
    await app.startup()
    try:
        await asyncio.to_thread(eventually, lambda: cached.exists())
        write(files, [GOLD])
        await asyncio.to_thread(eventually, lambda: policies.at(1) is None)
        await asyncio.to_thread(eventually, lambda: rings.versions().keys() == {"account", "container", object_ring(0)})
        await asyncio.to_thread(eventually, lambda: not cached.exists())
    finally:
        await app.cleanup()


async def test_the_ring_of_a_policy_that_goes_by_mistake_stays(files: Path) -> None:
    write(files, [GOLD, SILVER])
    save(make_ring(), files / f"{object_ring(1)}.ring")
    settings = settings_in(files)
    rings = RingSet.of(settings)
    app = create_base_app("proxy", trust_request_ids=False)
    policies = use_policies(app, settings, rings)
    app.freeze()
    await app.startup()
    try:
        write(files, [GOLD])
        await asyncio.to_thread(eventually, lambda: policies.at(1) is None)
        assert rings.has(object_ring(1))
    finally:
        await app.cleanup()


async def test_a_process_that_needs_no_rings_knows_new_policies_at_once(files: Path) -> None:
    app = create_base_app("container", trust_request_ids=False)
    policies = use_policy_list(app, settings_in(files))
    app.freeze()
    await app.startup()
    try:
        write(files, [GOLD, {**SILVER, "deprecated": True}])
        await asyncio.to_thread(eventually, lambda: policies.at(1) is not None)
        write(files, "no policies")
        write(files, [GOLD])
        await asyncio.to_thread(eventually, lambda: policies.at(1) is None)
    finally:
        await app.cleanup()
