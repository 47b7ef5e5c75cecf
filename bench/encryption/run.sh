#!/usr/bin/env bash
# What TLS between a caller and an object server costs natively, without Python; ../RESULTS.md says what it came to.
#
#   bench/encryption/run.sh DIRECTORY [SECONDS] [ROUNDS]      about two minutes; needs 4 GiB there
set -euo pipefail
cd "$(dirname "$0")/../.."

cargo build --quiet --release --manifest-path native/Cargo.toml -p swiftlet-node --example encryption_bench
exec native/target/release/examples/encryption_bench "$@"
