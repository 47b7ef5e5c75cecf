# Work that takes minutes: what it writes goes into a log, a line tells now and then how far it is, and when it fails or is
# interrupted nothing half made is left.
# shellcheck shell=bash disable=SC2154  # names from settings.sh

readonly tell_every_s=20
readonly shown_log_lines=15
working=''

# spoken SECONDS: as people say it.
spoken() {
    if (($1 < 90)); then
        printf '%d s\n' "$1"
    else
        printf '%d min\n' $((($1 + 30) / 60))
    fi
}

# with_progress TITLE SECONDS STEP: run make_STEP, which should take about so long.
with_progress() {
    local title=$1 expected=$2 step=$3 start=$SECONDS log=$logs/$3.log code=0
    mkdir -p "$logs"
    say "cluster: $title"
    trap stop_working EXIT
    trap 'exit 130' INT TERM
    # A process group of its own, which is stopped as a whole.
    set -m
    (
        set +m
        trap - EXIT INT TERM
        "make_$step"
    ) >"$log" 2>&1 8>&- &
    working=$!
    set +m
    while is_working "$tell_every_s"; do
        say "cluster: $title: $(spoken $((SECONDS - start))) of about $(spoken "$expected"); $log"
    done
    wait "$working" || code=$?
    if [[ $code -ne 0 ]]; then
        tail -n "$shown_log_lines" "$log" >&2
        die "$title: failed" "see $log, mend it, and run this again: what is done already stays"
    fi
    working=''
    trap - EXIT INT TERM
    say "cluster: $title: done in $(spoken $((SECONDS - start)))"
}

# is_working SECONDS: still, after that time.
is_working() {
    local end=$((SECONDS + $1))
    while kill -0 "$working" 2>/dev/null; do
        ((SECONDS < end)) || return 0
        sleep 0.2
    done
    return 1
}

stop_working() {
    local code=$?
    if [[ -n $working ]]; then
        kill -TERM -- "-$working" 2>/dev/null || true
        wait "$working" 2>/dev/null || true
        rm -rf --one-file-system "$cache"/*.part "$programs"/*.part "$images"/*.part
        [[ $code -ne 130 ]] || say "cluster: interrupted; what was done before stays, the rest is begun anew next time"
    fi
    exit "$code"
}
