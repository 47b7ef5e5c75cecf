"""`swiftlet advise`: files, what is refused and in which words, and every example of its guide as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.advice.observed import parse
from swiftlet.bench.tests.results import operation, result, step
from swiftlet.main.commands.advise import scraping
from swiftlet.main.commands.cli import run, swiftlet

ROOT = Path(__file__).parents[4]
WORKLOADS = ROOT / "examples" / "workloads"
GUIDE = ROOT / "docs" / "guide" / "sizing.md"
SCENARIO = {
    "title": "reads",
    "sizes": {"fixed": "1 MB"},
    "operations": {"read": 1},
    "closed": {"connections": [4, 8]},
    "duration_s": 10,
}
EXAMPLE = re.compile(r"^```console\n\$ (swiftlet advise .*?)\n```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def advise(*arguments: object) -> int:
    return run(swiftlet, ["advise", *map(str, arguments)])


@pytest.fixture
def workload() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKLOADS / "archive.yaml").read_text())
    return found


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def said(document: Any, *options: str) -> str:
        file = tmp_path / "w.yaml"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        assert advise(file, *options) == 1
        return capsys.readouterr().err.replace(str(tmp_path), "")

    return said


def changed(document: dict[str, Any], way: str, value: Any) -> dict[str, Any]:
    """The document with one field changed; None takes it out."""
    at: Any = document
    *names, last = [int(name) if name.isdecimal() else name for name in way.split(".")]
    for name in names:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return document


@pytest.mark.parametrize(
    ("way", "value", "said"),
    [
        ("stored", None, "stored: missing in"),
        ("stored", "much", "stored: 'much' in /w.yaml: is no size"),
        ("stored", 0, "stored: 0 in /w.yaml: input should be greater than or equal to 1"),
        ("stored", "1 MB", "stored: 1,000,000 bytes are less than one object of sizes"),
        ("sizes", {"fixed": 0}, "sizes: all objects are empty"),
        ("sizes", None, "sizes: missing; give it in the workload, or a result (--run), or --metrics"),
        ("per_second.read", -1, "per_second.read: -1 in /w.yaml: input should be greater than or equal to 0"),
        ("per_second.reads", 1, "per_second.reads: unknown setting in /w.yaml; did you mean 'per_second.read'?"),
        ("cached", 1.5, "cached: 1.5 in /w.yaml: input should be less than or equal to 1"),
        ("replicas", 0, "replicas: 0 in /w.yaml"),
        ("erasure_coding", {"data": 4}, "erasure_coding.parity: missing in /w.yaml"),
        ("erasure_coding", {"data": 1, "parity": 2}, "erasure_coding.data: 1 in /w.yaml"),
        ("erasure_coding", {"data": 4, "parity": 9}, "erasure_coding.parity: 9 in /w.yaml"),
        ("busy", 1, "busy: 1 in /w.yaml"),
        ("hardware", None, "hardware: missing; give it in the workload, or in a file of its own (--hardware)"),
        ("hardware.nodes.0.disk", "tape", "nodes[0].disk: 'tape' is none of the disks: hdd, ssd"),
        ("hardware.nodes.0.disk", None, "hardware.nodes[0]: set in /w.yaml: disk and disks go together"),
        ("hardware.nodes.0.disks", 33, "hardware.nodes[0].disks: 33 in /w.yaml: input should be less than or equal"),
        ("hardware.nodes.0.price", None, "hardware.nodes.dense.price: give prices of all nodes and disks, or of none"),
        ("hardware.disks.1.name", "hdd", "disks: a name is given twice"),
        ("hardware.databases.0", "tape", "databases[0]: 'tape' is none of the disks"),
        ("hardware.disks.0.reads_per_s", 0, "hardware.disks[0].reads_per_s: 0 in /w.yaml"),
        ("hardware.nodes.0.network_bytes_per_s", "1 KB", "hardware.nodes.dense: 1000 of them would be too few"),
    ],
)
def test_nonsense_is_refused_by_the_field_s_name(
    workload: dict[str, Any], refused: Any, way: str, value: Any, said: str
) -> None:
    assert said in refused(changed(workload, way, value))


def test_what_is_no_workload_is_refused(refused: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must hold fields such as `title:`" in refused("[1, 2]")
    assert "is not valid YAML" in refused("a: [")
    assert advise(tmp_path / "none.yaml") == 1
    assert "none.yaml can't be read: No such file or directory" in capsys.readouterr().err
    assert advise() == 2
    assert "name the file of a workload" in capsys.readouterr().err


def test_hardware_and_costs_have_files_of_their_own(
    workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware, bare, dear = tmp_path / "h.yaml", tmp_path / "w.yaml", tmp_path / "costs.json"
    hardware.write_text(yaml.safe_dump(workload.pop("hardware")))
    bare.write_text(yaml.safe_dump(workload))
    assert advise(bare, "--hardware", hardware, "--json", "--name", "far", "--namespace", "away") == 0
    cluster, policy = map(json.loads, capsys.readouterr().out.splitlines())
    assert cluster["metadata"] == {"name": "far", "namespace": "away"}
    assert policy["spec"]["clusterRef"] == {"name": "far"}
    known = json.loads((ROOT / "services/swiftlet/advice/costs.json").read_text())
    for operations in (*known["cpu_us"].values(), *known["coded"]["cpu_us"].values()):
        for points in operations.values():
            points[:] = [[size, cost * 200] for size, cost in points]
    dear.write_text(json.dumps(known))
    assert advise(bare, "--hardware", hardware, "--json", "--costs", dear) == 0
    dearer = json.loads(capsys.readouterr().out.splitlines()[0])
    assert dearer["spec"]["proxy"]["workers"] > cluster["spec"]["proxy"]["workers"]
    dear.write_text("{}")
    assert advise(bare, "--costs", dear) == 1
    assert "costs.json: version: this release reads 1" in capsys.readouterr().err


def test_a_recorded_run_says_how_much_is_asked(
    workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, recorded = tmp_path / "w.yaml", tmp_path / "r.json"
    del workload["sizes"], workload["per_second"]
    file.write_text(yaml.safe_dump(workload))
    scenario = {**SCENARIO, "objects": 10}
    measured = result(scenario, [step(operations={"read": operation(ended=90)}), step(connections=8)])
    recorded.write_text(measured.model_dump_json())
    assert advise(file, "--run", recorded, "--times", 100) == 0
    shown = capsys.readouterr().out
    # A thousand in ten seconds with eight connections, a hundred times.
    assert "asked    read 10,000/s: 0 B/s in, 10 GB/s out" in shown
    recorded.write_text("{}")
    assert advise(file, "--run", recorded) == 1
    assert "is no result of `swiftlet bench run --json`" in capsys.readouterr().err


def test_metrics_of_running_services_say_how_much_is_asked(
    workload: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(requests: int) -> str:
        return (
            f'swiftlet_http_requests_total{{method="PUT",service="proxy",status="201"}} {requests}\n'
            f'swiftlet_http_received_bytes_total{{service="proxy"}} {requests * 5000}\n'
        )

    file, pages = tmp_path / "w.yaml", iter([text(0), text(500)])
    workload["stored"] = "10 TB"
    file.write_text(yaml.safe_dump(workload))
    monkeypatch.setattr(scraping, "_page", lambda _: parse(next(pages)))
    moments = iter([0.0, 50.0])
    monkeypatch.setattr("swiftlet.main.commands.advise.scraping.time.sleep", lambda _: None)
    monkeypatch.setattr("swiftlet.main.commands.advise.scraping.time.monotonic", lambda: next(moments))
    assert advise(file, "--metrics", "http://store/metrics", "--seconds", 50) == 0
    assert "asked    create 10/s: 50 KB/s in, 0 B/s out" in capsys.readouterr().out
    monkeypatch.undo()
    assert advise(file, "--metrics", "ftp://store") == 1
    assert "--metrics ftp://store: write an address" in capsys.readouterr().err
    assert advise(file, "--metrics", "http://127.0.0.1:1/metrics", "--seconds", 1) == 1
    assert "--metrics http://127.0.0.1:1/metrics: " in capsys.readouterr().err


def test_a_cluster_s_pitfalls_are_told_with_reason_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = yaml.safe_load((ROOT / "examples" / "minimal.yaml").read_text().split("---")[0])
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(cluster))
    assert advise("--cluster", file) == 0
    assert capsys.readouterr().out.startswith("StorageCluster photos: 1 pitfall\nNOTE    spec.proxy.resources.requests")
    cluster["spec"] |= {"rings": {"replicas": 2}, "proxy": {"replicas": 1}}
    file.write_text(yaml.safe_dump({"kind": "List", "items": [cluster]}))
    assert advise("--cluster", file, "--json") == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["cluster"], one["field"]) for one in found if one["severity"] == "WARNING"] == [
        ("photos", "spec.rings.replicas"),
        ("photos", "spec.proxy.replicas"),
    ]
    cluster["spec"]["pools"][0]["storage"]["size"] = "big"
    file.write_text(yaml.safe_dump(cluster))
    assert advise("--cluster", file) == 1
    assert "spec.pools[0].storage.size: 'big'" in capsys.readouterr().err
    file.write_text("kind: Service")
    assert advise("--cluster", file) == 1
    assert "there is no StorageCluster in it" in capsys.readouterr().err


def test_the_examples_of_custom_resources_are_looked_at_whole(capsys: pytest.CaptureFixture[str]) -> None:
    for file in sorted((ROOT / "examples").glob("*.yaml")):
        assert advise("--cluster", file) in (0, 1), capsys.readouterr().err


def test_the_schema_has_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert advise("--schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"stored", "per_second", "hardware"} <= schema["properties"].keys()
    parts = [schema, *schema["$defs"].values()]
    assert all("description" in field or "$ref" in field for part in parts for field in part["properties"].values())


def test_the_guide_shows_what_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With UPDATE_GUIDE=1 the outputs in the guide are written anew."""
    monkeypatch.chdir(ROOT)
    text = GUIDE.read_text("utf-8")
    assert len({one[0] for one in EXAMPLE.findall(text)} & set(_of_workloads())) == 3

    def printed(match: re.Match[str]) -> str:
        command, *filters = match[1].split(" | ")
        run(swiftlet, shlex.split(command)[1:])
        out = capsys.readouterr().out
        for one in filters:
            assert one == "grep '^#'"
            out = "".join(line for line in out.splitlines(keepends=True) if line.startswith("#"))
        return f"```console\n$ {match[1]}\n```\n\n```text\n{out}```"

    now = EXAMPLE.sub(printed, text)
    if os.environ.get("UPDATE_GUIDE"):
        GUIDE.write_text(now, "utf-8")
    assert now == text


def _of_workloads() -> list[str]:
    names = ("archive", "training-data", "small-objects")
    return [f"swiftlet advise examples/workloads/{name}.yaml{more}" for name in names for more in ("", " | grep '^#'")]
