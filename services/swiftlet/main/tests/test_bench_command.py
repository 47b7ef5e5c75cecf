"""`swiftlet bench`: options, credentials, files, exit codes; against a store in this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.bench.results import read_result
from swiftlet.bench.tests.store import Store, running
from swiftlet.main.commands.cli import run, swiftlet

SCENARIO: dict[str, Any] = {
    "title": "small",
    "objects": 5,
    "sizes": {"fixed": 100},
    "operations": {"read": 1},
    "closed": {"connections": [2]},
    "warm_up_s": 0,
    "count": 20,
}


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as made:
        yield made


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "SWIFTLET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ST_USER", "test:tester")
    monkeypatch.setenv("ST_KEY", "secret")


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    return str(file)


def bench(*arguments: object) -> int:
    return run(swiftlet, ["bench", *map(str, arguments)])


def test_s3_takes_its_keys_from_the_environment(
    store: Store, scenario: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.depth = 2
    assert bench("run", scenario, "--api", "s3") == 2
    assert "--api s3 needs --target" in capsys.readouterr().err
    assert bench("run", scenario, "--api", "s3", "--target", store.endpoint) == 0
    assert set(store.signatures) == {""}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert bench("run", scenario, "--api", "s3", "--target", store.endpoint) == 1
    assert "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in capsys.readouterr().err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert bench("run", scenario, "--api", "s3", "--target", store.endpoint) == 0
    assert "Credential=key/" in store.signatures[-1]
    assert "/us-east-1/s3/" in store.signatures[-1]


def test_a_run_is_printed_and_written(
    store: Store, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    assert bench("run", scenario, "--target", store.endpoint, "--json", out, "--pids", os.getpid()) == 0
    printed = capsys.readouterr().out
    assert "small" in printed
    assert "read" in printed
    assert bench("run", scenario, "--target", f"{store.endpoint}/auth/v1.0", "--json", out, "--append") == 0
    assert [step.run for step in read_result(out).steps] == [1, 2]
    assert read_result(out).target == f"{store.endpoint}/v1/AUTH_test"
    asked = len(store.asked)
    capsys.readouterr()
    again = ("--target", store.endpoint, "--json", out, "--append", "--set", "seed=2")
    assert bench("run", scenario, *again) == 1
    assert "these differ: seed" in capsys.readouterr().err
    assert len(store.asked) == asked
    store.fault = lambda method, *_: 500 if method == "GET" else None
    assert bench("run", scenario, "--target", store.endpoint) == 1


def test_an_account_takes_the_place_of_the_one_that_logging_in_gives(
    store: Store, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{store.endpoint}/v1/AUTH_other"
    monkeypatch.setenv("ST_AUTH", f"{store.endpoint}/auth/v1.0")
    assert bench("run", scenario, "--target", url, "--prefix", "p") == 0
    monkeypatch.setenv("OS_STORAGE_URL", f"{store.endpoint}/v1/AUTH_third")
    monkeypatch.setenv("OS_AUTH_TOKEN", "another")
    assert bench("run", scenario, "--target", url, "--prefix", "p") == 0
    assert {path.split("/")[2] for _, path in store.asked} == {"AUTH_other"}
    assert store.tokens == {"token", "another"}


def test_a_mounted_secret(store: Store, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ST_USER")
    monkeypatch.delenv("ST_KEY")
    for name, value in (("user", "test:tester"), ("key", "secret"), ("authUrl", "http://nowhere.invalid/auth/v1.0")):
        (tmp_path / name).write_text(value)
    assert bench("run", scenario, "--target", store.endpoint, "--credentials", tmp_path) == 0


def test_two_results_are_compared_and_have_pages(
    store: Store, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, html = tmp_path / "before.json", tmp_path / "after.json", tmp_path / "page.html"
    for out in (before, after):
        arguments = ("--target", store.endpoint, "--json", out, "--html", html, "--runs", 4)
        assert bench("run", scenario, *arguments) == 0
    assert "<svg" in html.read_text("utf-8")
    html.unlink()
    assert bench("page", before, html) == 0
    assert "<svg" in html.read_text("utf-8")
    capsys.readouterr()
    # Which is faster is chance; that both commands agree is not.
    code = bench("compare", before, after)
    assert "Mann-Whitney" in capsys.readouterr().out
    assert bench("compare", before, after, "--json") == code
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["figure"] for row in rows} > {"operations_per_s", "p99_s"}
    assert code == int(any(row["verdict"] == "worse" for row in rows))
    assert bench("compare", before, scenario) == 1
    assert "is no result of `swiftlet bench run --json`" in capsys.readouterr().err


def test_ctrl_c_ends_a_run_with_what_there_is(store: Store, scenario: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "swiftlet.main", "bench", "run", scenario, "--target", store.endpoint]
    changes = ["--set", "duration_s=3600", "--json", str(out)]
    with subprocess.Popen([*command, *changes], stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while ("GET", "object") not in {(method, _kind(path)) for method, path in list(store.asked)}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Cut short by Ctrl-C" in printed
    assert read_result(out).is_cut_short
    assert not store.objects


def _kind(path: str) -> str:
    return "object" if path.count("/") == 4 else "container"


def test_what_ships_is_listed_shown_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("list") == 0
    assert "small-upload: Small objects" in capsys.readouterr().out
    assert bench("show", "small-upload") == 0
    assert yaml.safe_load(capsys.readouterr().out)["operations"] == {"read": 5, "create": 90, "delete": 5}
    assert bench("schema") == 0
    assert "sizes" in json.loads(capsys.readouterr().out)["properties"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 1, "no scenario and no file nothing"),
        (["small-upload", "--set", "closed.connections=0"], 1, "closed.connections[0]: 0 in --set"),
        (["small-upload", "--target", "127.0.0.1:8080"], 2, "is no URL such as"),
        (["small-upload", "--pids", "one"], 2, "write process ids"),
        (["small-upload", "--append"], 2, "--append needs --json"),
        (["small-upload", "--cluster", "."], 1, "no store runs on ."),
        (["small-upload"], 1, "there are no credentials"),
        (["small-upload", "--target", "http://127.0.0.1:1"], 1, "logging in failed"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("run", *arguments) == code
    assert message in capsys.readouterr().err


def test_a_wrong_key_and_a_result_that_cant_be_written(
    store: Store, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench("run", scenario, "--target", store.endpoint, "--json", tmp_path / "no" / "out.json") == 1
    assert "can't be written: " in capsys.readouterr().err
    assert not store.asked
    monkeypatch.setenv("ST_KEY", "wrong")
    assert bench("run", scenario, "--target", store.endpoint) == 1
    assert "does not take the credentials" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("coded", "content", "code", "message"),
    [
        ("4x2", None, 2, "must be DATA+PARITY such as 4+2, not '4x2'"),
        ("1+2", None, 2, "must be DATA+PARITY"),
        ("4+2", None, 1, "measure a store with copies first, without --coded"),
        ("4+2", '{"version": 7}', 1, "version: this release reads 1, the file has 7"),
    ],
)
def test_costs_of_coding_are_added_to_those_of_copies(
    coded: str, content: str | None, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "costs.json"
    if content is not None:
        output.write_text(content)
    assert bench("costs", tmp_path / "ready.json", "--coded", coded, "--output", output) == code
    assert message in capsys.readouterr().err
