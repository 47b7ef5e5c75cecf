#!/usr/bin/env bash
# Install what the comparison with OpenStack Swift needs: pinned packages in .cache/bench-peers, and Debian's programs.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/../../hack/lib.sh"

readonly home=.cache/bench-peers
# Each program, and the Debian package that it comes with.
readonly -A programs=([memcached]=memcached [nft]=nftables [rsync]=rsync [unshare]=util-linux [wrk]=wrk)

missing=()
for program in "${!programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("${programs[$program]}")
done
ldconfig -p | grep -q liberasurecode || missing+=(liberasurecode-dev)
ldconfig -p | grep -q libisal || missing+=(libisal2)
if [[ ${#missing[@]} -gt 0 ]]; then
    [[ $(id -u) -eq 0 ]] || die "these are not installed: ${missing[*]}" "sudo apt-get install ${missing[*]}"
    say "bench-peers: installing ${missing[*]}"
    apt-get update -qq
    # Nothing of it is to run on its own.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi

pinned_venv "$home" bench/peers/requirements.txt "bench-peers: installing OpenStack Swift"
