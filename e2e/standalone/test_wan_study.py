"""The study over the wide area: its client, what it keeps of a run, how it judges, and its page."""

from __future__ import annotations

import asyncio
import configparser
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bench.wan import openstack
from bench.wan.bodies import body
from bench.wan.load import Cell, Outcome, Target, measure
from bench.wan.study import plan
from bench.wan.study_judging import CODED, OURS, SWIFT, TAHOE_WIDE, THREADED, Verdict, bars, orderings
from bench.wan.study_page import BEGIN, END, between, pictures, write_page
from bench.wan.study_results import Measured, append, done_cells, median, read, steady
from bench.wan.tahoe import connected

SIZE = 5 << 20
WRITE = Cell("small 2 write", "write", "small 2", SIZE, 2, 3, 60.0)
READ = replace(WRITE, name="small 2 read", kind="read")


def _measured(
    way: str = OURS, place: str = "three", cell: Cell = WRITE, number: int = 1, mb_s: float = 10.0
) -> Measured:
    return Measured(number, place, way, cell, 3, 0, 0, mb_s, mb_s, 1.0, 2.0, 0.03, None, 5.0, "")


# -- the client --------------------------------------------------------------------------------------------------------


class _Served:
    """A server that keeps what is PUT, and answers as `changed` says."""

    def __init__(self, changed: Callable[[str, bytes], tuple[int, bytes]]) -> None:
        self.kept: dict[str, bytes] = {}
        self._changed = changed
        self.is_stuck = False
        self.freed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/auth/v1.0":
            return web.Response(headers={"X-Auth-Token": "t"})
        if request.method == "POST":
            return web.Response(text=f"URI:DIR2:{len(self.kept)}")
        if request.method == "PUT":
            if self.is_stuck and "small-2-" in request.path:
                await self.freed.wait()
            self.kept[request.path] = await request.read()
            return web.Response(status=201)
        status, data = self._changed(request.path, self.kept.get(request.path, b""))
        return web.Response(status=status, body=data)


def _run(served: _Served, cells: list[Cell], api: str = "swift") -> list[Outcome]:
    async def go() -> list[Outcome]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", served.handle)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [address] = runner.addresses
        about: dict[str, Any] = {"api": api, "endpoint": f"http://127.0.0.1:{address[1]}"}
        about |= {"user": "test:tester", "key": "k", "policy": "coded"}
        try:
            async with aiohttp.ClientSession() as session:
                target = Target(session, about)
                await target.prepare(2)
                return [await measure(target, cell) for cell in cells]
        finally:
            served.freed.set()
            await runner.cleanup()

    return asyncio.run(go())


def test_bodies_have_their_size_and_differ() -> None:
    one, again, other = (b"".join(body(seed, SIZE)) for seed in (1, 1, 2))
    assert len(one) == SIZE
    assert one == again != other


@pytest.mark.parametrize("api", ["swift", "tahoe"])
def test_the_client_reads_what_it_wrote(api: str) -> None:
    served = _Served(lambda _, data: (200, data))
    written, got = _run(served, [WRITE, READ], api)
    for outcome in (written, got):
        assert (len(outcome.taken_s), outcome.failed, outcome.unfinished) == (3, 0, 0), outcome.example
        assert outcome.done_bytes == 3 * SIZE
        assert outcome.seconds >= max(outcome.taken_s)
    assert [len(data) for name, data in served.kept.items() if "small-2-" in name] == [SIZE] * 3


def test_what_is_not_what_was_written_has_failed() -> None:
    for changed, reason in (
        (lambda _, data: (200, data[:-1]), "ended before"),
        (lambda _, data: (200, data + b"x"), "not those"),
        (lambda _, data: (200, b"x" + data[1:]), "not those"),
        (lambda _, data: (503, b"too few replicas"), "503: too few replicas"),
    ):
        _, got = _run(_Served(changed), [WRITE, READ])
        assert (got.failed, got.done_bytes) == (3, 0)
        assert reason in got.example


def test_the_limit_ends_what_hangs_and_what_was_not_written_is_not_read() -> None:
    served = _Served(lambda _, data: (200, data))
    served.is_stuck = True
    written, got = _run(served, [replace(WRITE, limit_s=0.2), READ])
    # Two were begun, the third had no time left.
    assert (written.unfinished, written.done_bytes) == (3, 0)
    assert (got.taken_s, got.failed) == ([], 0)


def test_samples_count_what_has_gone_by() -> None:
    served = _Served(lambda _, data: (200, data))
    [outcome] = _run(served, [replace(WRITE, has_samples=True)])
    counts = [count for _, count in outcome.samples]
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= 3 * SIZE


# -- results -----------------------------------------------------------------------------------------------------------


def test_the_rate_after_the_first_second_leaves_the_first_out() -> None:
    mib = 1 << 20
    assert steady([(0.5, mib), (0.9, 10 * mib), (1.1, 12 * mib)], 110 * mib, 11.0) == pytest.approx(10.0)
    assert steady([(0.5, mib)], mib, 0.9) is None


def test_results_survive_a_run_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "study.jsonl"
    assert read(path) == []
    append(path, [_measured(), _measured(number=2)])
    with path.open("a") as out:
        out.write('{"round": 3, "pla')
    assert [one.round for one in read(path)] == [1, 2]
    append(path, [_measured(number=4)])
    assert [one.round for one in read(path)] == [1, 2, 4]
    assert done_cells(read(path)) == {(number, "three", OURS) for number in (1, 2, 4)}


def test_medians_are_over_rounds_and_leave_out_what_is_missing() -> None:
    found = [_measured(number=number, mb_s=rate) for number, rate in enumerate((1.0, 9.0, 4.0), 1)]
    assert median(found, "three", OURS, WRITE.name, "mb_s") == 4.0
    assert median(found, "three", OURS, WRITE.name, "steady_mib_s") is None
    assert median(found, "local", OURS, WRITE.name, "mb_s") is None


def test_a_line_of_the_client_becomes_a_measurement() -> None:
    outcome = {"taken_s": [2.0, 1.0, 1.5], "done_bytes": 3 * 10**6, "seconds": 2.0, "failed": 1, "unfinished": 2}
    outcome |= {"busy_rates": [1e6, 2e6], "example": "503", "samples": []}
    cell = {field: getattr(WRITE, field) for field in Cell.__dataclass_fields__}
    one = Measured.of(1, "three", OURS, json.loads(json.dumps({"cell": cell, "outcome": outcome})), 7.0)
    assert (one.mb_s, one.bandwidth_mb_s, one.mean_s, one.first_s, one.median_rest_s) == (1.5, 3.0, 1.5, 2.0, 1.25)
    assert (one.done, one.failed, one.unfinished, one.steady_mib_s) == (3, 1, 2, None)
    assert "1 failed, 2 unfinished 503" in one.line()
    assert one.cpu_per_gb_s is None
    assert replace(one, cpu_s=0.3).cpu_per_gb_s == pytest.approx(0.3 / (3 * SIZE) * 1e9)
    assert replace(one, cpu_s=0.3, done=0).cpu_per_gb_s is None


# -- judging -----------------------------------------------------------------------------------------------------------


def _everywhere(rates: dict[tuple[str, str, str], float]) -> list[Measured]:
    """Measurements of all groups with one rate for each way, place and kind."""
    return [
        _measured(way, place, replace(WRITE, name=f"{group} {kind}", kind=kind), mb_s=rate)
        for (way, place, kind), rate in rates.items()
        for group in THREADED
    ]


def _verdict(verdicts: list[Verdict], *words: str) -> Verdict:
    [one] = [one for one in verdicts if all(word in one.statement for word in words)]
    return one


def test_bars_hold_or_not_and_nothing_is_said_of_what_is_missing() -> None:
    found = _everywhere({(OURS, "three", "write"): 31.0, (SWIFT, "three", "write"): 10.0})
    found += _everywhere({(OURS, "three", "read"): 19.0, (SWIFT, "three", "read"): 10.0})
    verdicts = list(bars(found))
    assert _verdict(verdicts, OURS + ":", "three sites, write").holds is True
    assert _verdict(verdicts, OURS + ":", "three sites, read").holds is False
    assert _verdict(verdicts, CODED, "three sites, read").holds is None


def test_a_store_that_served_nothing_is_not_ahead() -> None:
    found = _everywhere({(OURS, "three", "write"): 0.0, (SWIFT, "three", "write"): 10.0})
    one = _verdict(list(bars(found)), OURS + ":", "three sites, write")
    assert (one.found, one.holds) == ("nothing was served", False)


@pytest.mark.parametrize(("far_s", "holds"), [(0.0296, True), (0.0298, False)])
def test_a_small_put_is_judged_by_a_trip_and_the_local_time(far_s: float, holds: bool) -> None:
    cell = replace(WRITE, name="latency write")
    found = [replace(_measured(cell=cell), median_rest_s=far_s)]
    found.append(replace(_measured(place="local", cell=cell), median_rest_s=0.002))
    assert _verdict(list(bars(found)), "small PUT").holds is holds


def test_orderings_of_the_paper_are_judged() -> None:
    rates = {(SWIFT, "three", "read"): 3.0, (TAHOE_WIDE, "three", "read"): 1.0, (SWIFT, "local", "read"): 2.0}
    verdicts = list(orderings(_everywhere(rates)))
    assert _verdict(verdicts, "Swift before Tahoe-LAFS", "three sites, read").holds is True
    assert _verdict(verdicts, "Swift: one site locally", "read").holds is False
    assert _verdict(verdicts, "Swift: three sites before one remotely, read").holds is None


# -- plan and page -----------------------------------------------------------------------------------------------------


def test_a_plan_reads_what_it_wrote_and_removes_it() -> None:
    for is_tahoe in (False, True):
        first, again = plan(is_tahoe)
        written: dict[str, Cell] = {}
        for cell in [*first, *again]:
            if cell.kind == "write":
                written[cell.group] = cell
            else:
                # A directory of Tahoe-LAFS belongs to a number modulo the threads.
                assert (cell.size, cell.threads) == (written[cell.group].size, written[cell.group].threads)
        removed = {cell.group for cell in first if cell.kind == "delete"}
        assert removed == (set() if is_tahoe else written.keys() - {"kept"})


def test_the_page_has_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text(f"before\n{BEGIN}\nwhat was there\n{END}\nafter\n")
    found = _everywhere({(OURS, "three", "write"): 31.0, (SWIFT, "three", "write"): 10.0})
    found.append(replace(_measured(SWIFT, cell=WRITE), failed=2))
    write_page(found, tmp_path)
    page = (tmp_path / "RESULTS.md").read_text()
    assert page.startswith(f"before\n{BEGIN}\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "what was there" not in page
    assert f"| three sites | {OURS} | - / 31.0 |" in page
    assert "3.10 times (3.10 to 3.10)" in page
    assert f"| three sites | {SWIFT} | small 2 write | 3 | 2 | 0 |" in page
    named = {name for name, drawn in pictures(found) if drawn}
    assert named == {"three-write", "three-write-time"}
    assert {path.stem for path in (tmp_path / "pictures").glob("*.svg")} == named


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no"):
        between("no marks", "text")


def test_servers_of_a_grid_are_counted_by_what_its_gateway_says() -> None:
    servers = [
        {"connection_status": status} for status in ("connected", "Connected to tcp:1", "Trying", "not connected")
    ]
    assert connected(json.dumps({"servers": servers})) == 2
    assert connected("{}") == 0


# -- OpenStack Swift ---------------------------------------------------------------------------------------------------


class _Addresses:
    """A lab as far as configuration needs it."""

    def address(self, region: str) -> str:
        return {"il": "10.1.0.1", "ga": "10.2.0.1"}[region]


def test_the_configuration_of_openstack_swift_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs read these files as configparser does."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    openstack.OpenStackSwift(_Addresses(), tmp_path, ("il", "ga"), "ga")  # type: ignore[arg-type]
    assert [command[2] for command in commands] == ["rings"]
    found = sorted(path.name for path in (tmp_path / "etc").glob("*.conf"))
    assert {"il-object.conf", "ga-container.conf", "ga-rsync.conf"} <= set(found)
    assert len([name for name in found if name.startswith("proxy-")]) == 2
    for path in (tmp_path / "etc").glob("*.conf"):
        if "rsync" not in path.name:
            settings = configparser.RawConfigParser(strict=True)
            settings.read(path)
            assert settings.sections(), path.name
            assert "{" not in path.read_text().replace("{replication_ip}", ""), path.name
