#!/usr/bin/env bash
# Draw bench/sync/results.json: figures in bench/sync/plots and the page bench/sync/results.html.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/../../hack/lib.sh"

readonly home=.cache/bench-sync
pinned_venv "$home" bench/sync/requirements.txt "bench-sync: installing matplotlib"
exec "$home/venv/bin/python" bench/sync/plots.py bench/sync/results.json bench/sync/plots bench/sync/results.html
