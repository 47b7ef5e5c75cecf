#!/usr/bin/env bash
# Measure small requests through the native object server: its part of bench/RESULTS.md.
#
#   bench/dataplane/run.sh DIRECTORY [SECONDS]      about a minute and a half; needs 6 GiB there, on a real disk
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo build --quiet --release --manifest-path native/Cargo.toml -p swiftlet-node --example dataplane_bench
native/target/release/examples/dataplane_bench "$@" | tee /dev/stderr | .venv/bin/python -m bench.micro read dataplane
