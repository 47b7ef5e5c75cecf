#!/usr/bin/env bash
# Install what the study over the wide area needs beside this project: OpenStack Swift and Tahoe-LAFS, in .cache.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/../../hack/lib.sh"

bench/peers/prepare.sh
pinned_venv .cache/bench-tahoe bench/wan/requirements.txt "bench-wan-study: installing Tahoe-LAFS"
