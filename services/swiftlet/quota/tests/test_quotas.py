"""The quota file: what it gives each account, what is said about mistakes, and what a damaged one changes: nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from swiftlet.errors import SettingsError
from swiftlet.quota import Limits, QuotaFile, parse_quotas

GOOD = """
precise: true
cache_seconds: 5
levels:
  default: {container_count: 100}
  L1: {container_count: 10, object_count: 1000, container_usage_bytes: 1099511627776}
  free: {}
  whole: {account_object_count: 7, account_usage_bytes: 8}
assignments: {press: L1, archive: free}
"""


def test_accounts_have_the_limits_of_their_level_or_of_the_default_one() -> None:
    quotas = parse_quotas(GOOD, "f")

    assert quotas.limits_of("press") == Limits("L1", 10, 1000, 1 << 40)
    assert quotas.limits_of("nobody") == Limits("default", 100)
    assert quotas.limits_of("archive").unlimited
    assert not quotas.limits_of("nobody").unlimited
    assert (quotas.precise, quotas.cache_s) == (True, 5)


def test_what_is_assigned_wins_over_what_is_chosen() -> None:
    quotas = parse_quotas(GOOD, "f")

    assert quotas.limits_of("nobody", "whole") == Limits("whole", account_object_count=7, account_usage_bytes=8)
    assert quotas.limits_of("press", "whole").level == "L1"
    assert quotas.limits_of("nobody", "was there once").level == "default"


def test_levels_alone_are_enough() -> None:
    quotas = parse_quotas("levels: {default: {}}", "f")

    assert (quotas.precise, quotas.cache_s, quotas.limits_of("a").unlimited) == (False, 30, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f: the file: expected a mapping"),
        ("- a", "f: the file: expected a mapping"),
        ("levels: [", "f: the file is not valid YAML"),
        ("precise: true", "f: levels: missing; it has no default"),
        ("levels: {L1: {}}", "f: levels must contain one named default"),
        ("levels: {default: 5}", "f: levels.default: expected a mapping"),
        ("levels: {default: {containers: 5}}", "f: levels.default.containers: unknown field"),
        (
            "levels: {default: {object_count: -1}}",
            "f: levels.default.object_count: input should be greater than or equal to 0",
        ),
        ("levels: {default: {object_count: '1'}}", "f: levels.default.object_count: input should be a valid integer"),
        ("levels: {default: {}}\nassignments: {press: L9}", "f: assignments.press: there is no level 'L9'"),
        ("levels: {default: {}}\nassignments: {'a/b': default}", "f: assignments.a/b: string should match"),
        ("levels: {default: {}}\nlevel: 1\ncache_seconds: 0", "f: cache_seconds: .*; level: unknown field"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        parse_quotas(text, "f")


@pytest.mark.parametrize("damage", [b"", b"levels: {L1: {}}", b"\xff", None])
def test_a_damaged_file_leaves_the_last_good_limits_in_force(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(GOOD)
    file = QuotaFile(path)
    assert file.version == hashlib.sha256(GOOD.encode()).hexdigest()[:8]
    before = (file.quotas, file.version)

    path.unlink() if damage is None else path.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"quota file .*quotas\.yaml"):
            file.reload()
    assert (file.quotas, file.version) == before

    path.write_text("levels: {default: {container_count: 1}}")
    assert file.reload()
    assert not file.reload()
    assert file.quotas.limits_of("press").container_count == 1


def test_without_a_file_there_are_no_limits() -> None:
    file = QuotaFile(None)

    assert (file.version, file.reload(), file.quotas.limits_of("press").unlimited) == (None, False, True)
