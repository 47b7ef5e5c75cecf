#!/usr/bin/env bash
# Draw bench/sync/results.json: figures in bench/sync/plots and the page bench/sync/results.html.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/../../hack/lib.sh"

readonly home=.cache/bench-sync
wanted=$(sha256sum bench/sync/requirements.txt | cut -d ' ' -f 1)
if [[ ! -f $home/stamp || $(<"$home/stamp") != "$wanted" ]]; then
    say "bench-sync: installing matplotlib"
    mkdir -p "$home"
    python3 -m venv --clear "$home/venv"
    "$home/venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r bench/sync/requirements.txt
    printf '%s\n' "$wanted" >"$home/stamp"
fi
exec "$home/venv/bin/python" bench/sync/plots.py bench/sync/results.json bench/sync/plots bench/sync/results.html
