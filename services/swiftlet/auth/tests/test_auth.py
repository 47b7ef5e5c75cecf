"""Tokens, users and the decision."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path as FilePath

import pytest

from swiftlet.auth.identity import Identity, Role, authorize
from swiftlet.auth.revocation import MAX_PER_USER, Revoked, parse_revocation
from swiftlet.auth.signatures import parse_signature
from swiftlet.auth.tokens import Token, Tokens, derive_key
from swiftlet.auth.users import Users, hash_secret, parse_users
from swiftlet.errors import Forbidden, SettingsError, Unauthorized
from swiftlet.names import Path

ALICE = Identity("AUTH_a", "alice", frozenset({Role.ADMIN}))
KEY = derive_key(b"k" * 32, "tokens")


class _Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_proves_its_identity_until_it_expires() -> None:
    clock = _Clock()
    tokens = Tokens([KEY], life_s=60, clock=clock)
    token, life = tokens.issue(ALICE)
    assert life == 60
    assert tokens.check(token) == ALICE
    clock.now += 60
    with pytest.raises(Unauthorized, match="expired"):
        tokens.check(token)


def test_no_changed_token_passes() -> None:
    tokens = Tokens([KEY])
    token, _ = tokens.issue(ALICE)
    for index in range(len(token)):
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        if changed.rstrip("ABCDEFGHIJKLMNOP") == token.rstrip("ABCDEFGHIJKLMNOP"):
            continue
        try:
            identity = tokens.check(changed)
        except Unauthorized:
            continue
        # Unused low bits of base64's last character are the only freedom there is.
        assert index in {token.index(".") - 1, len(token) - 1}
        assert identity == ALICE


@pytest.mark.parametrize(
    "token",
    ["", "AUTH_tk", "AUTH_tk.", "AUTH_tkAAAA.AAAA", "Bearer x", "AUTH_tké.é", "AUTH_tk" + "A" * 5000, "AUTH_tkW10.W10"],
)
def test_garbage_is_unauthorized(token: str) -> None:
    with pytest.raises(Unauthorized):
        Tokens([KEY]).check(token)


def test_keys_rotate_without_logging_anyone_out() -> None:
    old, new = derive_key(b"1" * 32, "tokens"), derive_key(b"2" * 32, "tokens")
    token, _ = Tokens([old]).issue(ALICE)
    assert Tokens([new, old]).check(token) == ALICE
    changing = Tokens([old])
    changing.use([new, old])
    assert changing.check(token) == ALICE
    assert Tokens([new]).check(changing.issue(ALICE)[0]) == ALICE
    with pytest.raises(Unauthorized):
        Tokens([new]).check(token)


def test_what_is_remembered_of_tokens_is_bounded_and_ends_with_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftlet.auth.tokens.MAX_VERIFIED", 2)
    clock = _Clock()
    tokens = Tokens([KEY], life_s=60, clock=clock)
    several = [tokens.issue(ALICE)[0] for _ in range(4)]
    for token in (*several, *several, *several):
        assert tokens.check(token) == ALICE
    clock.now += 60
    for token in several:
        with pytest.raises(Unauthorized, match="expired"):
            tokens.check(token)
    clock.now -= 60
    tokens.use([derive_key(b"2" * 32, "tokens")])
    for token in several:
        with pytest.raises(Unauthorized, match="not issued here"):
            tokens.check(token)


def test_users_are_checked_and_reloaded(tmp_path: FilePath) -> None:
    file = tmp_path / "users.yaml"
    entry = "- {{account: a, user: alice, roles: [admin], secret_hash: '{}'}}\n"
    file.write_text(entry.format(hash_secret("one")))
    users = Users(file)
    assert users.check("a:alice", "one") == ALICE
    for login, key in [("a:alice", "two"), ("a:bob", "one"), ("alice", "one"), ("", "")]:
        with pytest.raises(Unauthorized):
            users.check(login, key)
    assert not users.reload()
    file.write_text("nonsense: [")
    with pytest.raises(SettingsError, match="not valid YAML"):
        users.reload()
    assert users.check("a:alice", "one") == ALICE
    file.write_text(entry.format(hash_secret("two")))
    assert users.reload()
    assert users.check("a:alice", "two") == ALICE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: 1", "the file must hold a list"),
        ("- 1", "user 1: expected a mapping"),
        ("- {account: a, user: b, roles: [admin]}", "missing field 'secret_hash'"),
        ("- {account: a, user: b, roles: [admin], secret_hash: x, color: red}", "unknown field 'color'"),
        ("- {account: a, user: b, roles: [king], secret_hash: x}", "roles must be a list of"),
        ("- {account: 'a:c', user: b, roles: [], secret_hash: x}", "can't contain ':'"),
        ("- {account: '', user: b, roles: [], secret_hash: x}", "account must be a non-empty string"),
    ],
)
def test_a_mistake_in_the_users_file_is_named(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_users(text, "users.yaml")


A, C, OBJ = Path("AUTH_a"), Path("AUTH_a", "c"), Path("AUTH_a", "c", "o")
OTHER = Path("AUTH_b", "c")


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.READER, {("GET", A), ("HEAD", C), ("GET", OBJ)}),
        (Role.USER, {("GET", A), ("PUT", C), ("PUT", OBJ), ("DELETE", OBJ), ("POST", C)}),
        (Role.ADMIN, {("GET", A), ("POST", A), ("PUT", C), ("DELETE", OBJ)}),
        (Role.RESELLER_ADMIN, {("PUT", A), ("DELETE", A), ("GET", OTHER), ("PUT", OTHER)}),
    ],
)
def test_roles_allow_what_they_say(role: Role, allowed: set[tuple[str, Path]]) -> None:
    identity = Identity("AUTH_a", "u", frozenset({role}))
    for method, path in allowed:
        authorize(identity, method, path)
    everything = {(m, p) for m in ("GET", "PUT", "POST", "DELETE") for p in (A, C, OBJ, OTHER)}
    denied = {
        Role.READER: {(m, p) for m, p in everything if m != "GET" or p is OTHER},
        Role.USER: {(m, p) for m, p in everything if p is OTHER or (p is A and m != "GET")},
        Role.ADMIN: {(m, p) for m, p in everything if p is OTHER or (p is A and m in {"PUT", "DELETE"})},
        Role.RESELLER_ADMIN: set(),
    }[role]
    for method, path in denied:
        with pytest.raises(Forbidden):
            authorize(identity, method, path)


def test_no_role_means_no_access() -> None:
    with pytest.raises(Forbidden):
        authorize(Identity("AUTH_a", "u", frozenset()), "GET", C)


def test_a_token_says_when_and_for_which_secret_it_was_given_out() -> None:
    clock = _Clock()
    tokens = Tokens([KEY], life_s=60, clock=clock)
    fresh = tokens.fresh(ALICE, "generation")
    assert tokens.read(tokens.text(fresh)) == fresh
    assert (fresh.issued, fresh.expires, len(fresh.id)) == (1_000_000, 1_000_060, 22)
    assert tokens.fresh(ALICE, "", expires=1_000_005).expires == 1_000_005
    assert tokens.fresh(ALICE, "", expires=2_000_000).expires == 1_000_060
    assert tokens.fresh(ALICE, "").id != fresh.id


@pytest.mark.parametrize("fields", [[], ["AUTH_a", "alice", ["admin"], 1_000_060], [0] * 8, {}, None])
def test_a_signed_token_of_another_shape_is_refused(fields: object) -> None:
    tokens = Tokens([KEY], clock=_Clock())
    key_id = next(iter(tokens._keys))
    payload = json.dumps([key_id, *fields] if isinstance(fields, list) else fields, separators=(",", ":")).encode()
    signature = hmac.new(KEY, payload, hashlib.sha256).digest()
    parts = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (payload, signature))
    with pytest.raises(Unauthorized, match="does not have 8 fields; ask for a new one"):
        tokens.check("AUTH_tk" + ".".join(parts))


def test_a_token_that_names_no_secret_is_nobodys(tmp_path: FilePath) -> None:
    file = tmp_path / "users.yaml"
    file.write_text(f"- {{account: a, user: alice, roles: [admin], secret_hash: '{hash_secret('one')}'}}\n")
    users, tokens = Users(file), Tokens([KEY])
    user = users.login("a:alice", "one")
    users.still(tokens.fresh(user.identity, user.generation))
    for identity, generation in ((user.identity, ""), (Identity("AUTH_a", "bob", frozenset()), "")):
        with pytest.raises(Unauthorized, match="changed"):
            users.still(tokens.fresh(identity, generation))


def test_conditions_are_asked_after_the_signature() -> None:
    asked: list[Token] = []
    tokens = Tokens([KEY], conditions=(asked.append,))
    with pytest.raises(Unauthorized):
        tokens.check("AUTH_tkW10.W10")
    assert asked == []
    tokens.check(tokens.issue(ALICE)[0])
    assert [token.identity for token in asked] == [ALICE]


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def digest(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", digest)
    file = tmp_path / "users.yaml"
    file.write_text(f"- {{account: a, user: alice, roles: [admin], secret_hash: '{hash_secret('one')}'}}\n")
    users = Users(file)
    tokens = Tokens([KEY], conditions=(users.still,))
    user = users.login("a:alice", "one")
    tokens.check(tokens.issue(user.identity, user.generation)[0])
    assert [len(one) for one, _ in compared] == [32, len(user.generation)]
    parse_signature("0" * 64, {"sha256"}).fits("key", "message")  # type: ignore[union-attr]
    assert len(compared) == 3


def test_revocations() -> None:
    clock = _Clock()
    tokens = Tokens([KEY], life_s=60, clock=clock)
    revoked = Revoked()
    first, second = tokens.fresh(ALICE, ""), tokens.fresh(ALICE, "")
    one = revoked.revoking(first, 1_000_000, 60)
    assert parse_revocation(one.name) == one
    revoked.add(one)
    with pytest.raises(Unauthorized, match="revoked"):
        revoked.check(first)
    revoked.check(second)
    assert revoked.needless(one, 1_000_000) == []
    assert revoked.needless(revoked.revoking(second, 1_000_060, 60), 1_000_060) == [one]
    for bad in ("", "a/b/c/d", "a/b/5/", "a/b/5/*x", "a/b/5", "a/b/5/x/y"):
        assert parse_revocation(bad) is None


def test_a_user_who_revokes_much_has_all_tokens_revoked_that_there_are() -> None:
    clock = _Clock()
    tokens = Tokens([KEY], life_s=60, clock=clock)
    revoked = Revoked()
    for _ in range(MAX_PER_USER):
        revoked.add(revoked.revoking(tokens.fresh(ALICE, ""), 1_000_000, 60))
    good, last = tokens.fresh(ALICE, ""), tokens.fresh(ALICE, "")
    revoked.check(good)
    everything = revoked.revoking(last, 1_000_000, 60)
    assert everything.id is None
    assert parse_revocation(everything.name) == everything
    needless = revoked.needless(everything, 1_000_000)
    assert len(needless) == MAX_PER_USER
    revoked.drop(needless)
    revoked.add(everything)
    assert len(revoked) == 1
    for token in (good, last):
        with pytest.raises(Unauthorized):
            revoked.check(token)
    clock.now += 1
    revoked.check(tokens.fresh(ALICE, ""))
    revoked.check(tokens.fresh(Identity("AUTH_a", "bob", frozenset()), ""))
