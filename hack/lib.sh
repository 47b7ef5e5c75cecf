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

# memory_folder GIB: make a folder in memory and print it; nothing where /dev/shm has less than that free, or the machine less
# than twice that, or nothing can be executed there.
memory_folder() {
    local wanted=$1 free available folder
    [[ -w /dev/shm && -r /proc/meminfo ]] || return 0
    free=$(df --output=avail -k /dev/shm | tail -n 1)
    available=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
    ((free >= wanted << 20 && available >= wanted << 21)) || return 0
    folder=$(mktemp -d /dev/shm/swiftlet.XXXXXX)
    if cp /bin/true "$folder" && "$folder/true" 2>/dev/null; then
        rm "$folder/true"
        printf '%s\n' "$folder"
    else
        rm -r "$folder"
    fi
}
