"""`swiftlet ring`, run in the test's process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from swiftlet.main.commands.ring import ring
from swiftlet.names import HashPath
from swiftlet.ring import codec

SPECS = [f"r1/z{i}/n{i}/127.0.0.1:{6201 + i}/d{i}:100" for i in range(4)]
LIST = "\n".join(
    f"- {{host: n{i}.example, port: 6200, device: sda, region: 1, zone: {i % 3}, weight: 50}}" for i in range(6)
)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(ring, list(arguments))
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def built(call: Any) -> Any:
    devices = [argument for spec in SPECS for argument in ("--device", spec)]
    call("build", "o.builder", "--part-power", "6", "--now-hours", "1000", *devices)
    return call


def test_build_writes_builder_and_ring(built: Any) -> None:
    assert codec.load("o.ring") == codec.load_builder("o.builder").ring
    assert codec.load("o.ring").part_power == 6


def test_build_from_a_list(call: Any) -> None:
    Path("devices.yaml").write_text(LIST)
    call("build", "o.builder", "--part-power", "5", "--devices", "devices.yaml", "--ring", "elsewhere")
    assert codec.load("elsewhere").device(0).zone == "0"
    assert codec.load("elsewhere").device(5).node == "n5.example"


def test_changes_take_effect_with_rebalance(built: Any) -> None:
    built("add-device", "o.builder", "--device", "r1/z4/n4/n4.example:6200/d:50")
    built("remove-device", "o.builder", "127.0.0.1:6201/d0")
    built("set-weight", "o.builder", "1", "200")
    built("set-replicas", "o.builder", "2")
    assert codec.load("o.ring").version == 1
    assert "version 2" in built("rebalance", "o.builder", "--now-hours", "1010").output
    ring_ = codec.load("o.ring")
    assert ring_.devices[0] is None
    assert ring_.device(1).weight == 200
    assert ring_.replica_count == 2
    assert ring_.device(4).zone == "z4"


def test_rebalance_says_when_it_has_to_wait(built: Any) -> None:
    built("add-device", "o.builder", "--device", "r1/z4/n4/n4.example:6200/d:100")
    output = built("rebalance", "o.builder", "--now-hours", "1000").output
    assert "rebalance again in 1 h" in output
    assert "replicas moved: 0" in output
    assert "replicas moved: 0" not in built("rebalance", "o.builder", "--ignore-min-part-hours").output


def test_show_and_dispersion_take_either_file(built: Any) -> None:
    for file in ("o.ring", "o.builder"):
        shown = built("show", file).output
        assert "64 partitions, 3 replicas, 4 devices" in shown
        assert "127.0.0.1:6204/d3" in shown
        assert "nearer to each other than necessary: 0" in built("dispersion", file).output


def test_which_node_holds_agrees_with_the_ring(built: Any) -> None:
    output = built("which-node-holds", "o.ring", "a", "c", "o/o", "--hash-prefix", "p", "--hash-suffix", "s").output
    ring_ = codec.load("o.ring")
    partition = ring_.partition_of(HashPath(b"p", b"s")("a", "c", "o/o"))
    assert f"partition  {partition}\n" in output
    for device in ring_.primaries(partition):
        assert f"  {device.address}  id {device.id}  " in output
    assert output.count("primary ") == 3
    assert output.count("handoff ") == 1
    assert "handoff" not in built("which-node-holds", "o.ring", "a", "--handoffs", "0").output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "nothing"], 1, "nothing: No such file or directory"),
        (["show", "list"], 1, "this is not a ring file"),
        (["rebalance", "o.ring"], 1, "not a builder file but a ring file"),
        (["rebalance", "o.builder", "--ring", "o.builder"], 1, "--ring o.builder is the builder file"),
        (["build", "o.builder", "--part-power", "4"], 1, "o.builder exists"),
        (["build", "n", "--part-power", "4"], 1, "no devices"),
        (["build", "n"], 2, "--part-power"),
        (["build", "n", "--part-power", "40"], 2, "--part-power"),
        (["build", "n", "--part-power", "4", "--replicas", "nan"], 1, "replicas"),
        (["build", "n", "--part-power", "4", "--device", SPECS[0]], 1, "3 replicas need 3 devices"),
        (["build", "n", "--part-power", "4", "--devices", "list"], 1, "must hold a list of devices"),
        (["build", "n", "--part-power", "4", "--devices", "broken"], 1, "neither YAML nor JSON"),
        (["build", "n", "--part-power", "4", "--devices", "lacks"], 1, "lacks: device 1 lacks the field 'device'"),
        (["build", "n", "--part-power", "4", "--devices", "unknown"], 1, "unknown field 'wieght'"),
        (["build", "n", "--part-power", "4", "--devices", "port"], 1, "port 'x' is not a number"),
        (["add-device", "o.builder"], 1, "no devices"),
        (["add-device", "o.builder", "--device", "a/b"], 1, "does not look like REGION/ZONE"),
        (["add-device", "o.builder", "--device", "r/z/n/h:1/d:1.2.3"], 1, "weight '1.2.3' is not a number"),
        (["add-device", "o.builder", "--device", SPECS[0]], 1, "names must be unique"),
        (["remove-device", "o.builder", "sdx"], 1, "device 'sdx' is not in the builder"),
        (["remove-device", "o.builder", "17"], 1, "no device with id 17"),
        (["set-weight", "o.builder", "1", "--", "-5"], 1, "weight -5.0 of device"),
        (["set-weight", "o.builder", "1", "heavy"], 2, "not a valid float"),
        (["set-replicas", "o.builder", "0"], 1, "replicas 0.0 is outside"),
        (["which-node-holds", "o.ring"], 2, "ACCOUNT"),
        (["which-node-holds", "o.ring", "\udcff"], 1, "must be valid UTF-8"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(built: Any, arguments: list[str], code: int, message: str) -> None:
    Path("list").write_text("devices: none")
    Path("broken").write_text("{[")
    Path("lacks").write_text("[{host: h, port: 1}]")
    Path("unknown").write_text(LIST.replace("weight", "wieght"))
    Path("port").write_text(LIST.replace("6200", "x"))
    before = Path("o.builder").read_bytes()
    result = built(*arguments, code=code)
    assert message in result.output
    if code == 1:
        assert len(result.output.strip().splitlines()) == 1
    assert Path("o.builder").read_bytes() == before


@pytest.mark.parametrize("command", sorted(ring.commands))
def test_every_command_has_help_with_an_example(call: Any, command: str) -> None:
    assert f"swiftlet ring {command} " in call(command, "--help").output
