"""`/statusz`: fields from parts, and no part that can spoil the others'."""

from __future__ import annotations

import json
import time

import pytest
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from swiftlet import __version__
from swiftlet.web.app import create_base_app
from swiftlet.web.statusz import MAX_BYTES, STATUS, StatusBoard


async def test_every_service_says_who_it_is() -> None:
    before = time.time()
    app = create_base_app("test", trust_request_ids=False)
    app[STATUS].add("rings", lambda: {"object-0": 3})
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/statusz")
        assert answer.status == 200
        assert answer.content_type == "application/json"
        report = await answer.json()
    assert before <= report.pop("startedAt") <= time.time()
    assert report == {"service": "test", "version": __version__, "rings": {"object-0": 3}}


def test_a_field_is_made_anew_for_every_report() -> None:
    counts = iter(range(9))
    board = StatusBoard("test", now_s=lambda: 5.5)
    board.add("count", lambda: next(counts))
    assert [json.loads(board.report())["count"] for _ in range(3)] == [0, 1, 2]
    assert json.loads(board.report())["startedAt"] == 5.5


def test_two_parts_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="already"):
        StatusBoard("test").add("version", lambda: 1)


def failing() -> object:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    "part",
    [failing, lambda: b"bytes", lambda: {1, 2}, lambda: float("nan"), lambda: {("a", "b"): 1}],
    ids=["raises", "bytes", "set", "nan", "key"],
)
def test_a_part_that_fails_is_null_and_said_once(part: object) -> None:
    board = StatusBoard("test")
    board.add("bad", part)  # type: ignore[arg-type]
    board.add("good", lambda: [1])
    with capture_logs() as logs:
        for _ in range(3):
            report = json.loads(board.report())
            assert report["bad"] is None
            assert report["good"] == [1]
    assert [entry["field"] for entry in logs] == ["bad"]


@pytest.mark.parametrize("size", [MAX_BYTES // 2, MAX_BYTES - 99, MAX_BYTES - 1, MAX_BYTES, 3 * MAX_BYTES])
def test_a_part_that_grows_too_large_is_null(size: int) -> None:
    board = StatusBoard("test")
    board.add("large", lambda: "x" * size)
    board.add("also", lambda: "y" * (MAX_BYTES // 4))
    with capture_logs() as logs:
        for _ in range(2):
            data = board.report()
    assert len(data) < MAX_BYTES
    report = json.loads(data)
    assert report["also"] is not None
    assert (report["large"] is None) is (size > MAX_BYTES // 2)
    assert len(logs) == (size > MAX_BYTES // 2)


def test_a_part_that_recovers_is_shown_again() -> None:
    values: list[object] = [{1}, 1, {1}]
    board = StatusBoard("test")
    board.add("value", lambda: values[0])
    with capture_logs() as logs:
        for expected in (None, 1, None):
            assert json.loads(board.report())["value"] == expected
            values.pop(0)
    assert len(logs) == 2
