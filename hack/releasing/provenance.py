"""Where a release comes from: a statement for attestations, and the digests that are signed.

The statement is in-toto's, version 1, with SLSA's provenance, version 1, as its predicate (https://slsa.dev/spec/v1.0/
provenance). It names every file in dist/ by digest, the commit, and the locks from which everything else was taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hack.releasing.version import ROOT, Release

LOCKS = ("requirements/build.txt", "requirements/operator.txt", "requirements/plugin.txt", "native/Cargo.lock")
SUMS = "SHA256SUMS"


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def statement(release: Release, files: Iterable[Path], parameters: Mapping[str, Any], dist: Path) -> dict[str, Any]:
    """The statement about `files`, whose names are relative to `dist`; `parameters` is what was asked for."""
    locks = [{"name": name, "digest": {"sha256": digest_of(ROOT / name)}} for name in LOCKS]
    made = datetime.fromtimestamp(release.time_s, UTC).isoformat().replace("+00:00", "Z")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": str(path.relative_to(dist)), "digest": {"sha256": digest_of(path)}} for path in sorted(files)
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://swiftlet.io/make-release/v1",
                "externalParameters": dict(parameters),
                "resolvedDependencies": [{"name": "source", "digest": {"gitCommit": release.commit}}, *locks],
            },
            "runDetails": {
                "builder": {"id": "https://swiftlet.io/make-release"},
                "metadata": {"invocationId": release.commit, "startedOn": made},
            },
        },
    }


def write_statement(release: Release, parameters: Mapping[str, Any], dist: Path) -> Path:
    """Write the statement about all files in `dist`, and return its path."""
    files = [path for path in dist.rglob("*") if path.is_file()]
    path = dist / "provenance.intoto.json"
    path.write_text(json.dumps(statement(release, files, parameters, dist), indent=1) + "\n", "utf-8")
    return path


def write_sums(dist: Path) -> Path:
    """Write the digests of all files in `dist`, as `sha256sum --check` reads them."""
    files = sorted(path for path in dist.rglob("*") if path.is_file())
    path = dist / SUMS
    path.write_text("".join(f"{digest_of(one)}  {one.relative_to(dist)}\n" for one in files), "utf-8")
    return path
