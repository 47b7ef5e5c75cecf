"""Usage of accounts in the metrics: the busiest only, and who was busy once fades."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, generate_latest

from swiftlet.listing.pool import ListingStore
from swiftlet.model import ContainerRow
from swiftlet.servers.containers import account_usage
from swiftlet.servers.containers.account_usage import AccountUsage
from swiftlet.servers.tests.listing_cluster import HASH_PATH
from swiftlet.timestamp import Timestamp


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ListingStore]:
    made = ListingStore(tmp_path, HASH_PATH)
    for number in range(3):
        row = ContainerRow("c", Timestamp(9), object_count=number, bytes_used=10 * number, reported=Timestamp(9))
        await made.update_containers(1, f"a{number}", [row])
    yield made
    await made.close()


def shown(usage: AccountUsage) -> dict[str, int]:
    """Bytes by account."""
    return {account: info.bytes_used for account, info in usage.shown.items()}


async def test_the_busiest_are_shown_and_no_others(store: ListingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_usage, "BUSIEST", 2)
    usage = AccountUsage({"d0": store})
    for account, times in (("a0", 1), ("a1", 5), ("a2", 3)):
        for _ in range(times):
            usage.note("d0", 1, account)
    assert shown(usage) == {}
    await usage.look()
    assert shown(usage) == {"a1": 10, "a2": 20}
    for _ in range(5):
        usage.note("d0", 1, "a0")
        await usage.look()
    assert "a0" in shown(usage)
    assert list(usage._seen) == [("d0", 1, "a0")]


async def test_accounts_that_are_not_there_are_left_out(store: ListingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_usage, "MAX_TRACKED", 2)
    usage = AccountUsage({"d0": store})
    for account in ("none", "a1", "one too many"):
        usage.note("d0", 1, account)
    await usage.look()
    assert shown(usage) == {"a1": 10}


async def test_the_page(store: ListingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = AccountUsage({"d0": store})
    usage.note("d0", 1, "a2")
    assert "a2" not in generate_latest(REGISTRY).decode()
    await usage.look()
    monkeypatch.setattr(account_usage, "_looking", [usage])
    page = generate_latest(REGISTRY).decode()
    assert 'swiftlet_account_bytes_used{account="a2"} 20.0' in page
    assert 'swiftlet_account_objects{account="a2"} 2.0' in page
    assert 'swiftlet_account_containers{account="a2"} 1.0' in page
