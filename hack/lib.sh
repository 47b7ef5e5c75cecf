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
