#!/usr/bin/env bash
# Measure the native store beside the disk below it: its part of bench/RESULTS.md.
#
#   bench/store/run.sh DIRECTORY            puts, gets, large objects, few objects and many (three minutes; needs 4 GiB)
#   bench/store/run.sh DIRECTORY many [OBJECTS [BEHIND]]
#       a start with ten million objects, and two million behind the checkpoint (needs 6 GiB there)
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly directory=${1:?which directory}/swiftlet-store-bench
cargo build --quiet --release --manifest-path native/Cargo.toml -p swiftlet-store --example store_bench
readonly bench=native/target/release/examples/store_bench
trap 'rm -rf "$directory"' EXIT

run() {
    mkdir -p "$directory"
    "$bench" "$directory" "$@"
}

if [[ ${2:-} == many ]]; then
    run fill 0 "${3:-10000000}" "${4:-2000000}"
    run open | tee /dev/stderr | .venv/bin/python -m bench.micro read store-many
else
    for what in puts gets large flat; do
        run "$what"
        rm -rf "$directory"
    done | tee /dev/stderr | .venv/bin/python -m bench.micro read store
fi
