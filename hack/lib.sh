# What the scripts beside this share; sourced, not run.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# say TEXT: what happens now, one line.
say() {
    printf '%s\n' "$*" >&2
}

# die TEXT [FIX]: stop, and say what to do about it.
die() {
    printf 'error: %s\n' "$1" >&2
    if [[ $# -gt 1 ]]; then
        printf '  fix: %s\n' "$2" >&2
    fi
    exit 1
}

# version_at_least HAVE WANT
version_at_least() {
    [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]
}

# pinned_venv HOME REQUIREMENTS WHAT: a venv in HOME/venv with what is pinned there by hash; WHAT is said while installing.
pinned_venv() {
    local wanted
    wanted=$(sha256sum "$2" | cut -d ' ' -f 1)
    if [[ -f $1/stamp && $(<"$1/stamp") == "$wanted" ]]; then
        return
    fi
    say "$3"
    mkdir -p "$1"
    python3 -m venv --clear "$1/venv"
    "$1/venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$2"
    printf '%s\n' "$wanted" >"$1/stamp"
}

# require_space GIB FOLDER...: stop unless each folder's file system has that much room.
require_space() {
    local wanted=$1 folder free
    shift
    for folder; do
        free=$(df --output=avail -k "$folder" | tail -n 1)
        if ((free < wanted << 20)); then
            die "the file system of $folder has $((free >> 10)) MiB free, and this needs $wanted GiB" \
                "make room there, or set TMPDIR to a folder on a larger file system"
        fi
    done
}
