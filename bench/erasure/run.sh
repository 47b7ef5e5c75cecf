#!/usr/bin/env bash
# Measure on one core how fast cells are coded and restored, beside ISA-L (Debian: libisal-dev) where that is installed,
# and objects cut and put together; ../RESULTS.md says what it came to. Two minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."

features=()
if [[ -n $(find /usr/lib /usr/local/lib -name libisal.so -print -quit 2>/dev/null) ]]; then
    features=(--features isal)
else
    echo 'ISA-L is not installed (Debian: apt-get install libisal-dev): measured without it' >&2
fi
{
    cargo bench --quiet --manifest-path native/Cargo.toml -p swiftlet-erasure --bench codec "${features[@]}"
    cargo bench --quiet --manifest-path native/Cargo.toml -p swiftlet-fragments --bench fragments
} | .venv/bin/python -m bench.micro read erasure
