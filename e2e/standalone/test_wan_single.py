"""Single streams over the wide area: plain TCP with the study's client, what is judged, and the page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from bench.wan.load import Cell, Outcome, Target, measure
from bench.wan.plain import serve
from bench.wan.single import BEGIN, END, PLAIN, bars, plan, write_page
from bench.wan.study_judging import OURS
from bench.wan.study_results import Measured

SIZE = 3 << 20
WRITE = Cell("single write", "write", "single", SIZE, 2, 3, 60.0, has_samples=True)
READ = replace(WRITE, name="single read", kind="read")


def _measured(way: str, place: str, cell: Cell, rate: float, congestion: str = "cubic") -> Measured:
    return Measured(1, place, way, cell, 1, 0, 0, 30.0, 30.0, 1.0, 2.0, None, rate, 5.0, "", congestion=congestion)


def _passed(cells: list[Cell]) -> tuple[list[Outcome], int]:
    """Measure cells over TCP; the outcomes, and how many connections that took."""
    connections = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await serve(reader, writer)

    async def go() -> list[Outcome]:
        async with await asyncio.start_server(counted, "127.0.0.1", 0) as server, aiohttp.ClientSession() as session:
            host, port = server.sockets[0].getsockname()
            target = Target(session, {"api": "tcp", "host": host, "port": port})
            await target.prepare(2)
            outcomes = [await measure(target, cell) for cell in cells]
            assert target.plain is not None
            target.plain.close()
            return outcomes

    return asyncio.run(go()), connections


def test_bytes_over_tcp_are_those_of_objects_and_connections_are_used_again() -> None:
    (written, got), connections = _passed([WRITE, READ])
    for outcome in (written, got):
        assert (len(outcome.taken_s), outcome.failed, outcome.unfinished) == (3, 0, 0), outcome.example
        assert outcome.done_bytes == 3 * SIZE
        assert 0 < outcome.samples[-1][1] <= 3 * SIZE
    assert connections == 2


def test_a_connection_has_been_one_of_many_or_is_new() -> None:
    cells = plan()
    groups = list(dict.fromkeys(cell.group for cell in cells))
    assert groups == ["many", "fewer", "used", "single"]
    assert {cell.group for cell in cells if cell.is_anew} == {"single"}
    assert {cell.group for cell in cells if cell.has_samples} == {"used", "single"}
    assert max(cell.threads for cell in cells if cell.group == "many") == 50


@pytest.mark.parametrize(("rate", "holds"), [(29.4, True), (29.3, False)])
def test_a_stream_is_judged_by_the_slow_link_with_that_of_tcp_beside(rate: float, holds: bool) -> None:
    found = [_measured(OURS, "remote", WRITE, rate), _measured(PLAIN, "remote", WRITE, 31.5)]
    found.append(_measured(OURS, "remote", WRITE, 1.0, "bbr"))
    [one] = [one for one in bars(found) if one.holds is not None]
    assert one.holds is holds
    assert "TCP alone 0.97" in one.found


def test_the_page_has_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text(f"before\n{BEGIN}\nwhat was there\n{END}\nafter\n")
    used = replace(WRITE, name="used write")
    found = [_measured(OURS, "remote", WRITE, 31.0), _measured(OURS, "remote", used, 26.0)]
    write_page([*found, _measured(PLAIN, "remote", READ, 31.4, "bbr")], tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert page.startswith(f"before\n{BEGIN}\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "what was there" not in page
    assert f"| cubic | one site, remote | {OURS} | 31.0 |  | 26.0 |  |" in page
    assert f"| bbr | one site, remote | {PLAIN} |  | 31.4 |  |  |" in page
