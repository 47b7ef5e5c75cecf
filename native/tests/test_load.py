"""The load generator at the border: what is refused, and in which order it is used."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from swiftlet_native import Load


def load(**changes: Any) -> Load:
    plan: dict[str, Any] = {
        "addresses": [("127.0.0.1", 9)],
        "host": "store",
        "path": "/v1/AUTH_a",
        "headers": [("X-Auth-Token", "t")],
        "authorities": None,
        "server_name": "store",
        "api": "swift",
        "keys": None,
        "prefix": "p",
        "containers": 1,
        "sizes": [(1.0, 10, 10, None, 0.0)],
        "mix": [("create", 1.0)],
        "page": 10,
        "seed": 1,
        "verify": 1.0,
        "timeout_s": 5.0,
        "threads": 1,
    }
    return Load(**{**plan, **changes})


def measure(one: Load, **changes: Any) -> None:
    order: dict[str, Any] = {"warm_up_s": 0, "duration_s": None, "operations": 3, "think_s": 0, "interval_s": None}
    one.measure(2, **{**order, "is_random": False, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"addresses": [("localhost", 80)]}, "localhost is no address"),
        ({"addresses": []}, "no address"),
        ({"api": "webdav"}, "webdav is no API"),
        ({"api": "s3", "keys": ("a\n", "s", "r")}, "keys and headers must not have control characters"),
        ({"api": "files", "mix": [("list", 1.0)]}, "no listings"),
        ({"mix": [("creates", 1.0)]}, "no operation creates"),
        ({"mix": [("create", 0.0)]}, "weights of operations"),
        ({"sizes": [(1.0, 2, 1, None, 0.0)]}, "sizes from 2 to 1"),
        ({"sizes": [(1.0, 0, 1, 0, 1.0)]}, "a lognormal size needs a median"),
        ({"timeout_s": -1.0}, "timeout_s is negative"),
        ({"threads": 0}, "threads must be from 1"),
        ({"verify": 1.01}, "verified must be from 0 to 1"),
        ({"verify": float("nan")}, "verified must be from 0 to 1"),
        ({"authorities": b"none"}, "no usable certificate"),
    ],
)
def test_a_plan_out_of_bounds_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**changes)


def test_one_thing_at_a_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = load(addresses=[silent.getsockname()])
        with pytest.raises(RuntimeError, match="no order was begun"):
            one.finish()
        assert one.wait(0)
        for wrong in ({"duration_s": 1.0}, {"operations": None}, {"interval_s": 0.0}, {"warm_up_s": -1.0}):
            with pytest.raises(ValueError, match=r"either|interval|negative"):
                measure(one, **wrong)
        with pytest.raises(ValueError, match="no phase fil"):
            one.begin("fil", 1)
        with pytest.raises(ValueError, match="connections must be from 1"):
            one.begin("fill", 0, 1)
        measure(one)
        with pytest.raises(RuntimeError, match="not finished"):
            measure(one)
        assert not one.wait(0)
        assert one.recent()["succeeded"] == 0
        one.cancel()
    outcome = one.finish()
    assert outcome["ended_early"] == "cancelled"
    assert outcome["objects"] == 0
    assert outcome["left"] <= 2
