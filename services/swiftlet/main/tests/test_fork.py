"""What a store imports before its services are forked."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, threading
from swiftlet.main.standalone.fork import preload
preload()
print(threading.active_count(), "prometheus_client" in sys.modules)
"""


def test_what_is_imported_beforehand_starts_no_thread_and_makes_no_metric() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "False"]
