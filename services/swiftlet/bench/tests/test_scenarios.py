"""Scenario files: those that ship, wrong ones, changes on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.bench import catalogue
from swiftlet.bench.errors import BenchError
from swiftlet.bench.runner import Step, steps
from swiftlet.bench.scenario import Ramp, Scenario
from swiftlet.settings.problems import Source
from swiftlet.units import parse_size, size_text, time_text


@pytest.mark.parametrize("name", catalogue.shipped())
def test_what_ships_can_be_run_and_says_what_it_is(name: str) -> None:
    scenario = catalogue.find(name)
    assert bool(scenario.repeats) != bool(scenario.about)
    assert list(steps(scenario))
    assert catalogue.text_of(name).startswith("title: ")


def test_each_mix_of_the_sources_ships() -> None:
    names = {"small-upload", "small-download", "large-upload", "large-download", "ssbench-1", "ssbench-2"}
    names |= {"wide-area-read", "wide-area-write", "aggregated-read", "aggregated-write", "put-latency", "get-latency"}
    names |= {"wide-area-read-1gb", "wide-area-write-1gb"}
    names |= {"many-containers", "container-database", "sync-population", "degraded"}
    names |= {
        "training-data",
        "backup-ingest",
        "container-registry",
        "log-shipping",
        "listing-storm",
        "million-objects",
    }
    assert names == set(catalogue.shipped())


MIXES: dict[str, tuple[tuple[int, int], dict[str, float], tuple[int, ...]]] = {
    "small-upload": ((1_000, 100_000), {"read": 5, "create": 90, "delete": 5}, ()),
    "small-download": ((1_000, 100_000), {"read": 90, "create": 5, "delete": 5}, ()),
    "large-upload": ((1_000_000, 10_000_000), {"read": 5, "create": 90, "delete": 5}, ()),
    "large-download": ((1_000_000, 10_000_000), {"read": 90, "create": 5, "delete": 5}, ()),
    "ssbench-1": ((10_000_000, 1_000_000_000), {}, (8,)),
    "ssbench-2": ((100_000_000, 5_000_000_000), {}, (8,)),
    "wide-area-read": ((100_000_000, 100_000_000), {"read": 1}, (10, 20, 30, 40, 50)),
    "wide-area-write": ((100_000_000, 100_000_000), {"create": 1}, (10, 20, 30, 40, 50)),
    "wide-area-read-1gb": ((1_000_000_000, 1_000_000_000), {"read": 1}, (10, 20, 30, 40, 50)),
    "wide-area-write-1gb": ((1_000_000_000, 1_000_000_000), {"create": 1}, (10, 20, 30, 40, 50)),
    "aggregated-read": ((10_000, 10_000), {"read": 1}, (1, 20)),
    "aggregated-write": ((10_000, 10_000), {"create": 1}, (1, 20)),
}
"""The smallest and the largest object, the weights of operations, and the connections, as the sources have them."""


@pytest.mark.parametrize("name", MIXES)
def test_what_repeats_a_source_has_its_sizes_and_mix(name: str) -> None:
    (least, most), operations, connections = MIXES[name]
    scenario = catalogue.find(name)
    pieces = scenario.sizes.pieces()
    assert (min(piece[1] for piece in pieces), max(piece[2] for piece in pieces)) == (least, most)
    if operations:
        assert {name: weight for name, weight in scenario.operations.weights() if weight} == operations
    if connections:
        assert tuple(step.connections for step in steps(scenario)) == connections


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": None}, "title: None in file: input should be a valid string"),
        ({"objcets": 3}, "objcets: unknown setting in file; did you mean 'objects'?"),
        ({"sizes": {"fixed": "10 KX"}}, "sizes.fixed: '10 KX' in file: is no size; write a number of bytes"),
        ({"sizes": {"fixed": -1}}, "sizes.fixed: -1 in file: input should be greater than or equal to 0"),
        ({"verify": 1.5}, "verify: 1.5 in file: input should be less than or equal to 1"),
        ({"sizes": {"fixed": 1, "uniform": {"least": 1, "most": 2}}}, "sizes: set in file: needs exactly one of fixed"),
        ({"sizes": {"uniform": {"least": 2, "most": 1}}}, "sizes.uniform: set in file: least must not be larger"),
        ({"sizes": {"weighted": [{"weight": 1}]}}, "sizes.weighted[0]: set in file: needs either size or uniform"),
        ({"sizes": {"weighted": [{"weight": 0, "size": 1}]}}, "weighted needs a weight above 0"),
        ({"sizes": {"weighted": []}}, "sizes.weighted: [] in file"),
        ({"sizes": {"lognormal": {"median": 10}}}, "sizes.lognormal.sigma: missing in file; it has no default"),
        ({"operations": {"reed": 1}}, "operations.reed: unknown setting in file; did you mean 'operations.read'?"),
        ({"operations": {}}, "at least one operation needs a weight above 0"),
        ({"operations": {"read": -1}}, "operations.read: -1 in file"),
        ({"objects": 0, "operations": {"read": 1}}, "objects must be above 0 where operations read"),
        ({"open": {"per_second": [1]}}, "needs either closed or open"),
        ({"closed": None}, "needs either closed or open"),
        ({"closed": {"connections": []}}, "closed.connections: [] in file"),
        ({"closed": {"connections": [0]}}, "closed.connections[0]: 0 in file: input should be greater than or equal"),
        ({"closed": {"connections": [1], "ramp": {}}}, "closed: set in file: needs either connections or ramp"),
        ({"closed": {"ramp": {"first": 3, "last": 2}}}, "first must not be larger than last"),
        ({"closed": {"ramp": {"factor": 1.001, "last": 1000}}}, "raise factor or lower last"),
        ({"count": None}, "needs either duration_s or count"),
        ({"count": None, "duration_s": 0}, "duration_s must be above 0"),
        ({"count": None, "duration_s": float("inf")}, "duration_s: inf in file"),
        ({"seed": -1}, "seed: -1 in file"),
        ({"threads": 65}, "threads: 65 in file: input should be less than or equal to 64"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(
    document: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BenchError, match="the scenario can't be used") as caught:
        catalogue.parse({**document, **change}, Source("file"))
    assert message in str(caught.value)


def test_files(tmp_path: Path, document: dict[str, Any]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(document))
    assert catalogue.find(str(file)) == Scenario.model_validate(document)
    for content, message in [("{", "is not valid YAML"), ("- 1", "must hold fields"), ("\xff", "must hold fields")]:
        file.write_text(content)
        with pytest.raises(BenchError, match=message):
            catalogue.find(str(file))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BenchError, match="can't be read"):
        catalogue.find(str(file))
    file.write_bytes(b"#" * (catalogue.MAX_FILE_BYTES + 1))
    with pytest.raises(BenchError, match="too large"):
        catalogue.find(str(file))
    with pytest.raises(BenchError, match=r"no scenario and no file nothing; shipped are: .*small-upload"):
        catalogue.find("nothing")
    with pytest.raises(BenchError, match="can't be read: Is a directory"):
        catalogue.find(str(tmp_path))


def test_changes_on_the_command_line() -> None:
    changed = catalogue.find(
        "small-upload", ["duration_s=2", "closed.connections=4", "sizes.fixed=4 KiB", "operations.list=3"]
    )
    assert changed.duration_s == 2
    assert [str(step) for step in steps(changed)] == ["4 connections"]
    assert changed.sizes.pieces() == [(1.0, 4096, 4096, None, 0.0)]
    assert dict(changed.operations.weights())["list"] == 3
    assert catalogue.find("small-upload", ["count=7"]).duration_s is None
    opened = catalogue.find("small-upload", ["open.per_second=[10, 20]"])
    assert list(steps(opened)) == [Step(256, 10.0), Step(256, 20.0)]
    for change, message in [
        ("duration_s", "write FIELD=VALUE"),
        ("duration_s={", "not valid YAML"),
        ("duration_s=ten", "duration_s: 'ten' in --set duration_s=ten: input should be a valid number"),
        ("duration_s.x=1", "duration_s"),
    ]:
        with pytest.raises(BenchError, match=message):
            catalogue.find("small-upload", [change])


def test_a_ramp_grows_up_to_its_last_step() -> None:
    assert list(Ramp(first=3, factor=1.1, last=6).connections()) == [3, 4, 5, 6]
    assert list(Ramp(first=4, factor=4, last=100).connections()) == [4, 16, 64, 100]
    assert list(Ramp(first=4, last=4).connections()) == [4]


def test_units() -> None:
    assert [parse_size(text) for text in ("12", "1.5 KB", "4KiB", "2 gb", "1TiB", "2 PB", "0 B")] == [
        12,
        1500,
        4096,
        2_000_000_000,
        1 << 40,
        2 * 10**15,
        0,
    ]
    assert [size_text(size) for size in (0, 999, 1500, 12_345_678, 4e14, 4e18)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "12.3 MB",
        "400 TB",
        "4000 PB",
    ]
    assert [time_text(time) for time in (0, 2e-7, 0.00123, 1.5, 120)] == ["0 µs", "0.2 µs", "1.23 ms", "1.5 s", "120 s"]
