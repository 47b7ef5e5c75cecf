"""Log lines: their shape, the request id, and what never stands in them."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from swiftlet.context import request_id
from swiftlet.web.log_metrics import LOST
from swiftlet.web.logs import Format, Level, configure_logging, get_logger, log_encoded, log_many


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_one_json_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("proxy")
    token = request_id.set("tx1")
    get_logger("here").info("an event", answer=42, x_auth_token="abc", key="abc", client_secret="abc")
    request_id.reset(token)
    get_logger("here").debug("not shown")
    [line] = lines(capsys)
    assert line.pop("timestamp")
    assert line == {
        "event": "an event",
        "answer": 42,
        "level": "info",
        "logger": "here",
        "service": "proxy",
        "request_id": "tx1",
        "x_auth_token": "[hidden]",
        "key": "[hidden]",
        "client_secret": "[hidden]",
    }


def test_tracebacks_and_other_libraries_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("proxy")
    try:
        raise ValueError("wrong")
    except ValueError:
        get_logger("here").exception("it failed")
    logging.getLogger("library").warning("from %s", "outside")
    first, second = lines(capsys)
    assert "ValueError: wrong" in str(first["exception"])
    assert (second["event"], second["logger"], second["level"]) == ("from outside", "library", "warning")


def test_console_lines_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("proxy", "debug", "console")
    get_logger("here").debug("an event", answer=42)
    assert "answer=42" in capsys.readouterr().err


def test_a_full_disk_loses_lines_and_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "log"
    descriptor = os.open("/dev/full", os.O_WRONLY)
    with open(descriptor, "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        configure_logging("proxy")
        before = LOST._value.get()
        get_logger("here").info("an event")
        logging.getLogger("library").warning("from outside")
        log_many("here", "many", [{"number": 1}, {"number": 2}], 0.0)
        assert LOST._value.get() == before + 4
        # The same file can be written again.
        usable = os.open(written, os.O_WRONLY | os.O_CREAT)
        os.dup2(usable, descriptor)
        os.close(usable)
        get_logger("here").info("written")
        assert LOST._value.get() == before + 4
    assert "written" in [json.loads(line)["event"] for line in written.read_text().splitlines()]


@pytest.mark.parametrize(("level", "format"), [("info", "json"), ("info", "console"), ("warning", "json")])
def test_lines_that_are_encoded_are_those_of_fields(
    level: Level, format: Format, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("structlog.processors._make_stamper", lambda *_: lambda event: event | {"timestamp": "then"})
    configure_logging("proxy", level, format)
    fields = [{"path": 'a}\n"b', "number": 1}, {"path": "}", "number": 0.5}]
    log_many("here", "many", fields, 1.5)
    expected = capsys.readouterr().err
    log_encoded("here", "many", "".join(json.dumps(one) + "\n" for one in fields), 1.5)
    assert capsys.readouterr().err == expected
    assert len(expected.splitlines()) == (2 if level == "info" else 0)
