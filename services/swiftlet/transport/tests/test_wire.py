"""Errors over the wire, signatures, and messages from nobody we know."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftlet.errors as errors
from swiftlet.boundaries.listings import PageForm
from swiftlet.errors import (
    DiskFull,
    NodeBusy,
    NodeError,
    NotFound,
    PolicyConflict,
    Superseded,
    SwiftletError,
    Unauthorized,
)
from swiftlet.model import AccountInfo, Amounts
from swiftlet.testing.store.conformance import at
from swiftlet.transport import signing
from swiftlet.transport.listing_wire import account_info_from_wire, account_info_to_wire, form_from_wire
from swiftlet.transport.object_messages import doubt_from, verdict_from
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import (
    WireError,
    error_from_wire,
    error_to_wire,
    json_bytes,
    json_object,
)


@pytest.mark.parametrize(
    "error",
    [
        NotFound("gone", at(5)),
        NotFound("never here"),
        Superseded("newer", at(5)),
        DiskFull("full"),
        PolicyConflict("another policy"),
        NodeBusy("later"),
    ],
)
def test_errors_there_and_back(error: SwiftletError) -> None:
    status, fields = error_to_wire(error)
    back = error_from_wire(status, json.dumps(fields).encode())
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert getattr(back, "timestamp", None) == getattr(error, "timestamp", None)


def test_every_domain_error_has_a_status() -> None:
    """Those that carry more than a message are built by hand above."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, SwiftletError) and kind.__init__ is SwiftletError.__init__:
            status, fields = error_to_wire(kind("what is wrong"))
            assert 400 <= status < 600
            assert isinstance(error_from_wire(status, fields), SwiftletError)


def test_what_a_peer_says_about_us_is_no_answer_to_our_caller() -> None:
    """A node that does not accept our signature is a failed node, not a client without a token."""
    for kind in (Unauthorized, errors.Forbidden, WireError, errors.StoreFormatError):
        assert type(error_from_wire(*error_to_wire(kind("no")))) is NodeError


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": "Exotic", "message": "m"}', b'{"error": 5}'])
def test_foreign_answers(body: bytes) -> None:
    assert type(error_from_wire(500, body)) is NodeError
    assert type(error_from_wire(503, body)) is NodeBusy


def test_superseded_without_its_time_is_a_failed_node() -> None:
    assert type(error_from_wire(409, b'{"error": "Superseded", "message": "m"}')) is NodeError


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["doubted", "proved", "epoch", "whole", "age_ms"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), values))
def test_messages_of_any_shape(fields: dict[str, object]) -> None:
    data = json_bytes(fields)
    for parse in (verdict_from, doubt_from):
        with suppress(WireError):
            parse(json_object(data))


class TestClusterKey:
    def make(self, key: bytes = b"key", now_s: float = 1000.0) -> ClusterKey:
        return ClusterKey(key, max_skew_s=60, now_s=lambda: now_s)

    def test_good(self) -> None:
        signature = self.make().sign("PUT", "h:1", "/v1/x?y=1", b"meaning")
        self.make(now_s=1059).check(signature, "PUT", "h:1", "/v1/x?y=1", b"meaning")

    @pytest.mark.parametrize(
        ("method", "host", "target", "meaning"),
        [
            ("GET", "h:1", "/x", b"m"),
            ("PUT", "h:2", "/x", b"m"),
            ("PUT", "h:1", "/y", b"m"),
            ("PUT", "h:1", "/x", b"n"),
        ],
    )
    def test_other_request(self, method: str, host: str, target: str, meaning: bytes) -> None:
        signature = self.make().sign("PUT", "h:1", "/x", b"m")
        with pytest.raises(Unauthorized, match="does not match"):
            self.make().check(signature, method, host, target, meaning)

    def test_another_server(self) -> None:
        """A request that was overheard is worth nothing at a server that it was not made for."""
        signature, other = self.make().sign("POST", "h:1", "/x"), self.make()
        other.answer_to(lambda host: host == "h:2")
        with pytest.raises(Unauthorized, match="not this server"):
            other.check(signature, "POST", "h:1", "/x")
        other.check(self.make().sign("POST", "h:2", "/x"), "POST", "h:2", "/x")

    def test_once(self) -> None:
        now_s = 1000.0
        key = ClusterKey(b"key", max_skew_s=60, now_s=lambda: now_s)
        signature = key.sign("POST", "h:1", "/x", b"m")
        key.check_once(signature, "POST", "h:1", "/x", b"m")
        with pytest.raises(Unauthorized, match="carried out before"):
            key.check_once(signature, "POST", "h:1", "/x", b"m")
        now_s += 1
        key.check_once(key.sign("POST", "h:1", "/x", b"m"), "POST", "h:1", "/x", b"m")

    def test_what_was_signed_before_the_start_may_have_been_obeyed(self) -> None:
        signature = self.make(now_s=999).sign("POST", "h:1", "/x")
        self.make().check(signature, "POST", "h:1", "/x")
        with pytest.raises(Unauthorized, match="sign it again"):
            self.make().check_once(signature, "POST", "h:1", "/x")

    def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signing, "MAX_ONCE", 2)
        now_s = 1000.0
        key = ClusterKey(b"key", max_skew_s=60, now_s=lambda: now_s)
        for target in ("/1", "/2"):
            key.check_once(key.sign("POST", "h:1", target), "POST", "h:1", target)
        with pytest.raises(NodeBusy):
            key.check_once(key.sign("POST", "h:1", "/3"), "POST", "h:1", "/3")
        now_s += 121
        key.check_once(key.sign("POST", "h:1", "/3"), "POST", "h:1", "/3")

    @pytest.mark.parametrize("now_s", [939.0, 1061.0])
    def test_clocks_apart(self, now_s: float) -> None:
        with pytest.raises(Unauthorized, match="check the clocks"):
            self.make(now_s=now_s).check(self.make().sign("GET", "h:1", "/x"), "GET", "h:1", "/x")

    @pytest.mark.parametrize("signature", [None, "", "v1", "v1::", "v2:5:ab", "v1:5:ü", "v1:-5:ab", f"v1:{10**99}:a"])
    def test_malformed(self, signature: str | None) -> None:
        with pytest.raises(Unauthorized):
            self.make().check(signature, "GET", "h:1", "/x")

    def test_another_version_is_named(self) -> None:
        told = "the cluster signature has format version 2, this program understands 1: run the same release"
        with pytest.raises(Unauthorized, match=told):
            self.make().check("v2:5:ab", "GET", "h:1", "/x")

    @pytest.mark.parametrize("keys", [(), (b"",), (b"key", b"")])
    def test_empty_key(self, keys: tuple[bytes, ...]) -> None:
        with pytest.raises(ValueError, match="empty"):
            ClusterKey(*keys)

    def test_the_first_key_signs_and_all_are_accepted(self) -> None:
        old, new, both = self.make(b"old"), self.make(b"new"), ClusterKey(b"old", b"new", now_s=lambda: 1000.0)
        for one in (old, new):
            both.check(one.sign("GET", "h:1", "/x"), "GET", "h:1", "/x")
        old.check(both.sign("GET", "h:1", "/x"), "GET", "h:1", "/x")

        both.use([b"new", b"old"])
        new.check(both.sign("GET", "h:1", "/x"), "GET", "h:1", "/x")
        both.check(old.sign("GET", "h:1", "/x"), "GET", "h:1", "/x")
        both.use([b"new"])
        with pytest.raises(Unauthorized, match="does not match"):
            both.check(old.sign("GET", "h:1", "/x"), "GET", "h:1", "/x")


@pytest.mark.parametrize(
    "policies",
    [
        {},
        [1],
        [[0, 1, 2, 3]],
        [{"policy": 0, "containers": 1, "objects": 2}],
        [{"policy": 65536, "containers": 1, "objects": 2, "bytes": 3}],
        [{"policy": 0, "containers": -1, "objects": 2, "bytes": 3}],
        [{"policy": 0, "containers": 1, "objects": 2, "bytes": 3}] * 257,
    ],
)
def test_totals_by_policy_of_another_shape(policies: object) -> None:
    fields = account_info_to_wire(AccountInfo("a", at(1), at(1), 1, 2, 3, {}, {0: Amounts(1, 2, 3)}))
    assert account_info_from_wire(fields).policies == {0: Amounts(1, 2, 3)}
    with pytest.raises(WireError):
        account_info_from_wire({**fields, "policies": policies})
    del fields["policies"]
    with pytest.raises(WireError, match="policies"):
        account_info_from_wire(fields)


def test_a_form_of_pages_that_is_not_known_is_refused() -> None:
    assert form_from_wire({}) is None
    assert form_from_wire({"form": "json"}) is PageForm.JSON
    with pytest.raises(WireError, match="'xml' is no form"):
        form_from_wire({"form": "xml"})
