#!/usr/bin/env bash
# What a newcomer does, in a fresh clone of HEAD: `make up`, store and fetch a file, `make down`, `make check`.
#
#   hack/fresh-clone.sh            all of it
#   hack/fresh-clone.sh --quick    without `make check`
#
# SWIFTLET_PORT (default 18080, so that a store on the usual port is not in the way) is the store's port.
set -euo pipefail
# shellcheck source=hack/lib.sh
source "$(dirname "$0")/lib.sh"

readonly start_within_s=900 # the first `make up` builds everything
readonly stop_within_s=30
export SWIFTLET_PORT=${SWIFTLET_PORT:-18080}

folder=$(mktemp -d)
clone=$folder/swiftlet
log=$folder/up.log
ready=$folder/ready.json
up_pid=

# Whatever happens: no store is left running, and nothing on disk.
clean_up() {
    local status=$?
    if [[ $status -ne 0 && -f $log ]]; then
        say "-- the end of what make up said:"
        tail -n 40 "$log" >&2
    fi
    if [[ -n $up_pid ]] && kill -0 "$up_pid" 2>/dev/null; then
        # It leads a process group of its own (set -m).
        kill -TERM -- "-$up_pid" 2>/dev/null || true
        wait_until "$stop_within_s" has_stopped || kill -KILL -- "-$up_pid" 2>/dev/null || true
        wait "$up_pid" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap clean_up EXIT

# wait_until SECONDS COMMAND...
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS >= deadline)); then
            return 1
        fi
        sleep 0.2
    done
}

is_ready() {
    kill -0 "$up_pid" 2>/dev/null || die "make up ended before the store was ready"
    [[ -e $ready ]]
}

has_stopped() {
    ! kill -0 "$up_pid" 2>/dev/null
}

# told NAME: what the store says of itself once it is ready, as it also prints it for people.
told() {
    sed -n "s/^  \"$1\": \"\(.*\)\",*$/\1/p" "$ready"
}

store_and_fetch() {
    local headers storage token
    headers=$(curl -fsS -i -H "X-Auth-User: $(told user)" -H "X-Auth-Key: $(told key)" "$(told auth_url)" | tr -d '\r')
    storage=$(sed -n 's/^X-Storage-Url: //Ip' <<<"$headers")
    token=$(sed -n 's/^X-Auth-Token: //Ip' <<<"$headers")
    if [[ -z $storage || -z $token ]]; then
        die "the answer to the v1 auth request names no storage URL or no token: $headers"
    fi
    head -c 3000000 /dev/urandom >"$folder/sent"
    curl -fsS -o /dev/null -X PUT -H "X-Auth-Token: $token" "$storage/photos"
    curl -fsS -o /dev/null -T "$folder/sent" -H "X-Auth-Token: $token" "$storage/photos/swift.jpg"
    curl -fsS -o "$folder/fetched" -H "X-Auth-Token: $token" "$storage/photos/swift.jpg"
    cmp "$folder/sent" "$folder/fetched"
    curl -fsS -H "X-Auth-Token: $token" "$storage/photos" | grep -qx swift.jpg ||
        die "the object is not in its container's listing"
}

if [[ -n $(git status --porcelain) ]]; then
    say "note: changes that are not committed are not in the clone"
fi
git clone --quiet --no-hardlinks "file://$PWD" "$clone"
cd "$clone"

say "== make up"
set -m
make up UP_ARGS="--ready-file $ready" >"$log" 2>&1 &
up_pid=$!
set +m
wait_until "$start_within_s" is_ready || die "the store was not ready within $start_within_s s"
say "ready after $SECONDS s"

say "== store and fetch"
store_and_fetch

say "== make down"
make down
wait_until "$stop_within_s" has_stopped || die "the store still ran $stop_within_s s after make down"
wait "$up_pid" || die "make up ended with status $? after make down"
up_pid=

if [[ ${1:-} != --quick ]]; then
    say "== make check"
    make check
fi
say "a newcomer gets along ($SECONDS s)"
