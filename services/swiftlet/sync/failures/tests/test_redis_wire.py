"""Names of keys in Redis."""

from __future__ import annotations

import pytest

from swiftlet.sync.failures import redis_wire
from swiftlet.sync.failures.redis_wire import Keys


def names() -> set[str]:
    keys = Keys("store")
    return {keys.heartbeat("n"), keys.failures("n"), keys.progress("n"), keys.observers, keys.notices}


def test_replicators_of_two_versions_have_no_key_and_no_channel_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = names()
    assert {name.rsplit("store:1:")[0] for name in mine} == {"swiftlet:"}
    assert len(mine) == 5
    monkeypatch.setattr(redis_wire, "VERSION", 2)
    assert not mine & names()
