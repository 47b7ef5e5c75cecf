"""The native package as `make check` compiles it shares crates with the Rust tests: their features are the same."""

from __future__ import annotations

import subprocess

MANIFEST = "native/Cargo.toml"


def features(*chosen: str) -> dict[str, set[str]]:
    """Return the sets of features, by crate and version, that cargo compiles for the chosen packages."""
    command = ["cargo", "tree", "--quiet", "--locked", "--offline", "--manifest-path", MANIFEST, *chosen]
    lines = subprocess.run(
        [*command, "--prefix", "none", "--format", "{p}|{f}"], check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        crate, _, enabled = line.removesuffix(" (*)").partition("|")
        found.setdefault(crate.split(" (")[0], set()).add(enabled)
    return found


def test_a_crate_of_the_package_is_compiled_with_the_features_that_tests_have() -> None:
    tests = features("--workspace", "--edges", "normal,build,dev")
    package = features("--package", "swiftlet-native", "--edges", "normal")
    assert "swiftlet-store v0.1.0" in package
    others = {crate: (enabled, tests[crate]) for crate, enabled in package.items() if not enabled <= tests[crate]}
    assert not others, "these are compiled twice: native/Cargo.toml gives a crate's features for all"
