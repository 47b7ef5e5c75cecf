"""Run the Rust tests: several test binaries at the same time, and once more, alone, each test that failed.

    hack/rust_tests.py FLAKY MOST [ARGUMENT...]

FLAKY is a file that gets the names of tests that passed alone, MOST how many failed tests are run again; the arguments
go to cargo as they are.

Most of these tests wait for a disk or for another process, and `cargo test` runs one binary after the other. The exit
status is 0 when every test passed, also if only alone. A binary that ends without saying which test failed (an abort, a
signal) is a failure, and so are more than MOST failed tests, which have one cause.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

MANIFEST = "native/Cargo.toml"
AT_ONCE = 2 * (os.cpu_count() or 1)
THREADS = 8
"""Tests at the same time within a binary, which mostly wait."""

FAILED = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", re.MULTILINE)


class Binary(NamedTuple):
    """A test binary, and the folder of its package, where its tests are run."""

    program: str
    folder: Path


def build(arguments: list[str]) -> list[Binary]:
    """Build the test binaries; return them in the order in which cargo finished them."""
    command = ["cargo", "test", "--quiet", "--manifest-path", MANIFEST, "--tests", "--no-run", *arguments]
    built = subprocess.run([*command, "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith(b"{")]
    return [
        Binary(message["executable"], Path(message["manifest_path"]).parent)
        for message in messages
        if message["reason"] == "compiler-artifact" and message.get("executable") and message["profile"]["test"]
    ]


def run(binary: Binary, *arguments: str) -> tuple[int, str]:
    """Run a test binary; return its exit status and what it printed."""
    done = subprocess.run(
        [binary.program, *arguments],
        cwd=binary.folder,
        env={**os.environ, "CARGO_MANIFEST_DIR": str(binary.folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def name(binary: Binary) -> str:
    """Return the name of the package and of the binary, without cargo's digest."""
    return f"{binary.folder.name}/{Path(binary.program).name.rpartition('-')[0]}"


def main() -> int:
    """Return the exit status of the run."""
    flaky_file, most, *arguments = sys.argv[1:]
    binaries = build(arguments)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda binary: run(binary, f"--test-threads={THREADS}"), binaries))
    again: list[tuple[Binary, str]] = []
    lost = False
    for binary, (status, printed) in zip(binaries, results, strict=True):
        tests = FAILED.findall(printed)
        if status != 0:
            print(f"== {name(binary)}\n{printed}", flush=True)
            lost = lost or not tests or status < 0
            again += [(binary, test) for test in tests]
        else:
            print(name(binary), printed.strip().rpartition("\n")[2], flush=True)
    if lost or len(again) > int(most):
        return 1
    for binary, test in again:
        print(f"== once more, alone: {name(binary)} {test}", flush=True)
        status, printed = run(binary, "--exact", "--test-threads=1", test)
        if status != 0 or " 1 passed" not in printed:
            print(printed, flush=True)
            return 1
    Path(flaky_file).write_text("".join(f"{test}\n" for _, test in again), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
