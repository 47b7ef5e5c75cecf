# Test runs in which what failed is run once more, alone; sourced after lib.sh.
#
# A test that passes then has failed because of what ran beside it or before it. The run stays green, and its summary names
# the test in a line `FLAKY ...`: such a test is a defect and is to be mended. When more than `rerun_at_most` tests failed,
# nothing is run again, because that many failures have one cause.
# shellcheck shell=bash

readonly rerun_at_most=10
flaky=()

# failed_tests CACHE: the node ids of the tests that failed in the last pytest run with this cache, each ended by a NUL.
failed_tests() {
    python - "$1/v/cache/lastfailed" <<'PYTHON'
import json, pathlib, sys

path = pathlib.Path(sys.argv[1])
for test in json.loads(path.read_text()) if path.exists() else ():
    print(test, end="\0")
PYTHON
}

# pytest_with_rerun STEP ARGUMENT...: run pytest, and each test that failed once more in a process of its own.
pytest_with_rerun() {
    local step=$1 cache=.cache/pytest/$1 status=0 broken=false test
    local -a failed=()
    shift
    pytest -q -o "cache_dir=$cache" --cache-clear "$@" || status=$?
    # 1: tests failed. Anything else (interrupted, wrong usage, nothing collected) is no matter of single tests.
    if [[ $status -ne 1 ]]; then
        return "$status"
    fi
    mapfile -d '' failed < <(failed_tests "$cache")
    if [[ ${#failed[@]} -eq 0 || ${#failed[@]} -gt $rerun_at_most ]]; then
        return 1
    fi
    for test in "${failed[@]}"; do
        say "== once more, alone: $test"
        if pytest -q -o "cache_dir=$cache-alone" -n 0 "$test"; then
            flaky+=("$step  $test")
        else
            broken=true
        fi
    done
    ! $broken
}

# cargo_test_with_rerun STEP ARGUMENT...: run the Rust tests, and each that failed once more, alone (see rust_tests.py).
cargo_test_with_rerun() {
    local step=$1 named=.cache/flaky-rust-tests status=0 test
    shift
    mkdir -p .cache
    : >"$named"
    python "$(dirname "${BASH_SOURCE[0]}")/rust_tests.py" "$named" "$rerun_at_most" "$@" || status=$?
    while read -r test; do
        flaky+=("$step  $test")
    done <"$named"
    return "$status"
}
