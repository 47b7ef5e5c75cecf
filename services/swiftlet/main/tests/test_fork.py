"""What a store imports before its services are forked, and a signal that comes to a fork at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PRELOAD = """
import sys, threading
from swiftlet.main.commands.standalone.fork import preload
preload()
print(threading.active_count(), "prometheus_client" in sys.modules)
"""
KILL_AT_ONCE = """
import os, signal, sys
from pathlib import Path
from swiftlet.main.commands.standalone.fork import forked
from swiftlet.main.commands.standalone.plan import ServicePlan
from swiftlet.main.commands.standalone.supervise import Signals

signals, folder = Signals(), Path(sys.argv[1])
with signals.caught():
    for _ in range(20):
        process = forked(ServicePlan("one", "object", 1, folder / "settings.yaml", folder / "log", {}, 1))
        os.kill(process.pid, signal.SIGTERM)
        process.join(20)
        print(process.exitcode)
        process.kill()
"""


def test_what_is_imported_beforehand_starts_no_thread_and_makes_no_metric() -> None:
    answer = subprocess.run([sys.executable, "-c", PRELOAD], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "False"]


def test_a_signal_that_comes_at_once_ends_a_service(tmp_path: Path) -> None:
    # Its settings are never written, so that it does not end by itself.
    os.mkfifo(tmp_path / "settings.yaml")
    command = [sys.executable, "-c", KILL_AT_ONCE, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.split() == [str(-signal.SIGTERM)] * 20
